//! The findings: opened when they are first sighted, confirmed, closed when they are sighted no more, and kept for a
//! while after.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{Detection, Found, Verdict};
use crate::{
    engine::{
        held::{Held, Subject, Wait},
        world::{World, sandbox::Sandbox},
    },
    model::{
        change::{ChangeKind, Evidence, EvidenceEvent, Finding},
        fact::Origin,
        finding::{Key, Revision, Stage},
        time::Timestamp,
    },
};

/// So many findings are open at most; what is beyond is not told.
const OPEN: usize = 10_000;
/// So many closed findings are kept; of more, the first to close are forgotten.
const CLOSED: usize = 1000;
/// What was told.
#[derive(Debug, Default)]
pub(super) struct Findings {
    rows: BTreeMap<Key, Row>,
    /// How often it has looked.
    pub(super) looks: u64,
    /// Those that are closed, the first to close first.
    closed: BTreeSet<(Timestamp, Key)>,
    pub(super) revision: Revision,
}

#[derive(Debug)]
struct Row {
    finding: Finding,
    /// The look that last sighted it.
    sighted: u64,
}

impl Findings {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.rows.values().map(|row| &row.finding)
    }

    /// What is not over.
    pub(super) fn open(&self) -> impl Iterator<Item = &Finding> {
        self.iter().filter(|it| it.stage != Stage::Closed)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Finding> {
        self.rows.get(key).map(|row| &row.finding)
    }

    pub(super) fn restore(&mut self, finding: Finding) {
        if let Some(at) = finding.closed_at {
            self.closed.insert((at, finding.key.clone()));
        }
        self.rows.insert(finding.key.clone(), Row { finding, sighted: 0 });
    }

    /// Opens, confirms and closes. What is open of a kind that was looked at, and was not found, is over.
    pub(super) fn take_in(&mut self, world: &World, found: Vec<Found>, now: Timestamp) -> Vec<Held> {
        let mut told = Vec::new();
        self.looks += 1;
        // Of two detections of one thing the first counts.
        let mut untold = BTreeSet::new();
        let mut kinds: Vec<&'static str> = Vec::new();
        for (kind, detections) in found {
            kinds.push(kind.into());
            for detection in detections {
                if !self.is_known(&detection) && !untold.contains(&detection.key) {
                    if self.is_untold(&detection) {
                        untold.insert(detection.key);
                    } else {
                        self.sighted(world, detection, now, &mut told);
                    }
                }
            }
        }
        kinds.sort_unstable();
        let over: Vec<Key> = kinds.into_iter().flat_map(|kind| self.not_sighted(kind)).cloned().collect();
        for key in over {
            self.close(&key, now, &mut told);
        }
        told
    }

    fn not_sighted(&self, kind: &str) -> impl Iterator<Item = &Key> {
        let rows = self.rows.range(Key::new(kind, &[""])..);
        let is_over = |row: &Row| row.finding.stage != Stage::Closed && row.sighted < self.looks;
        rows.take_while(move |(key, _)| key.kind() == kind)
            .filter(move |(_, row)| is_over(row))
            .map(|(key, _)| key)
    }

    /// Fills in the versions of programs that were found since.
    pub(super) fn learn_versions(&mut self, world: &World) {
        for row in self.rows.values_mut().filter(|row| row.finding.stage != Stage::Closed) {
            if world.learn_versions(&mut row.finding.programs) {
                self.revision.meaning += 1;
            }
        }
    }

    /// Whether the detection says what is known: there can be thousands of those. Or that it was sighted before at this
    /// look.
    fn is_known(&mut self, it: &Detection) -> bool {
        let Some(Row { finding, sighted }) = self.rows.get_mut(&it.key) else { return false };
        if *sighted == self.looks {
            return true;
        }
        if finding.stage == Stage::Closed || !is_same(finding, it) {
            return false;
        }
        *sighted = self.looks;
        true
    }

    /// Whether nothing was told of it, nor is to be now.
    pub(super) fn is_untold(&self, it: &Detection) -> bool {
        let is_early = matches!(
            it.standing,
            Verdict::Watched { .. } | Verdict::Unsure | Verdict::Unverified | Verdict::Unlisted
        );
        let is_new = self.get(&it.key).is_none_or(|known| known.stage == Stage::Closed);
        is_new && (is_early || self.number() >= OPEN)
    }

    /// Opens a finding, or takes in what is new of it.
    fn sighted(&mut self, world: &World, it: Detection, now: Timestamp, told: &mut Vec<Held>) {
        let before = self.rows.remove(&it.key).map(|row| row.finding);
        if let Some((before, at)) = before.as_ref().and_then(|before| Some((before, before.closed_at?))) {
            self.closed.remove(&(at, before.key.clone()));
        }
        let mut known = before.filter(|before| before.stage != Stage::Closed);
        let is_new = known.is_none();
        let stage = stage_of(known.as_ref(), &it);
        let mut finding = Finding {
            stage,
            since: known.as_ref().map_or(it.since, |known| known.since.min(it.since)),
            opened_at: known.as_ref().map_or(now, |known| known.opened_at),
            confirmed_at: known
                .as_ref()
                .and_then(|known| known.confirmed_at)
                .or_else(|| (stage == Stage::Confirmed).then_some(now)),
            closed_at: None,
            gapped: it.gapped,
            // What was told of it is kept until there is more.
            evidence: known.as_mut().map(|known| mem::take(&mut known.evidence)).unwrap_or_default(),
            programs: known.as_mut().map(|known| mem::take(&mut known.programs)).unwrap_or_default(),
            runtimes: match known.as_mut() {
                Some(known) => mem::take(&mut known.runtimes),
                None => world.records.sockets(),
            },
            pod: it.pod,
            sandboxes: it.sandboxes,
            severity: it.severity,
            kind: it.kind,
            key: it.key,
        };
        world.learn_versions(&mut finding.programs);
        if known.as_ref().is_none_or(|known| known.stage != stage) {
            self.turned();
        } else if known.as_ref().is_some_and(|known| !means_same(known, &finding)) {
            self.revision.meaning += 1;
        }
        if is_new {
            let opened = Finding { stage: Stage::Candidate, confirmed_at: None, ..finding.clone() };
            told.push(held(opened, now, ChangeKind::FindingOpened));
        }
        if stage == Stage::Confirmed && known.is_none_or(|known| known.stage != Stage::Confirmed) {
            told.push(held(finding.clone(), now, ChangeKind::FindingConfirmed));
        }
        self.rows.insert(finding.key.clone(), Row { finding, sighted: self.looks });
    }

    /// It is another thing with a finding now.
    fn turned(&mut self) {
        self.revision.stages += 1;
        self.revision.meaning += 1;
    }

    fn close(&mut self, key: &Key, now: Timestamp, told: &mut Vec<Held>) {
        let Some(Row { finding, .. }) = self.rows.get_mut(key) else { return };
        finding.stage = Stage::Closed;
        finding.closed_at = Some(now);
        told.push(held(finding.clone(), now, ChangeKind::FindingClosed));
        self.turned();
        self.closed.insert((now, key.clone()));
        if self.closed.len() > CLOSED
            && let Some((_, first)) = self.closed.pop_first()
        {
            self.rows.remove(&first);
        }
    }

    /// How many are not over.
    pub(super) fn number(&self) -> usize {
        self.rows.len() - self.closed.len()
    }

    /// Adds to a finding that leaves what was told of its sandboxes until then, and keeps it with that.
    pub(super) fn complete(&mut self, finding: &mut Finding, world: &World) {
        finding.evidence = evidence(finding, world);
        finding.programs = world.programs_of(finding);
        let Some(Row { finding: kept, .. }) = self.rows.get_mut(&finding.key) else { return };
        // What is forgotten since is no reason to forget it here.
        if !finding.evidence.is_empty() {
            kept.evidence.clone_from(&finding.evidence);
        }
        if !finding.programs.is_empty() {
            kept.programs.clone_from(&finding.programs);
        }
        self.turned();
    }
}

/// Whether a detection says of a finding that is open what is known of it.
fn is_same(known: &Finding, it: &Detection) -> bool {
    (known.stage, known.severity, known.gapped) == (stage_of(Some(known), it), it.severity, it.gapped)
        && known.since <= it.since
        && known.kind == it.kind
        && known.pod == it.pod
        && known.sandboxes == it.sandboxes
}

/// Whether a finding says what a detection does, but for numbers that move while it goes on.
pub(super) fn says(known: &Finding, it: &Detection) -> bool {
    (known.stage, known.severity, known.gapped) == (stage_of(Some(known), it), it.severity, it.gapped)
        && known.since <= it.since
        && known.pod == it.pod
        && (it.kind.explain().shows_some() || known.sandboxes == it.sandboxes)
        && known.kind.means(&it.kind)
}

/// Whether two states of a finding differ only in numbers that move while it goes on.
fn means_same(before: &Finding, now: &Finding) -> bool {
    (before.stage, before.severity, before.gapped) == (now.stage, now.severity, now.gapped)
        && before.pod == now.pod
        && (now.kind.explain().shows_some() || before.sandboxes == now.sandboxes)
        && before.kind.means(&now.kind)
}

/// What was confirmed stays so until it is over.
fn stage_of(known: Option<&Finding>, it: &Detection) -> Stage {
    let was_confirmed = known.is_some_and(|known| known.stage == Stage::Confirmed);
    let is_sure = matches!(it.standing, Verdict::Confirmed | Verdict::Passing { .. });
    if was_confirmed || is_sure { Stage::Confirmed } else { Stage::Candidate }
}

/// A verdict is the agent's own, and waits for nothing: its pod is named as far as it is known.
fn held(finding: Finding, at: Timestamp, what: fn(Box<Finding>) -> ChangeKind) -> Held {
    let subject = Subject {
        named: finding.pod.clone(),
        sandbox: finding.sandboxes.last().cloned(),
        ..Subject::default()
    };
    let what = what(Box::new(finding));
    Held { at, origin: Origin::Agent, late: false, subject, wait: Wait::Nothing, what }
}

/// What was told of the sandboxes of a finding.
fn evidence(finding: &Finding, world: &World) -> Vec<Evidence> {
    let rows = finding.sandboxes.iter().filter_map(|id| world.sandboxes.recall(id));
    let of_row = |row: &Sandbox| {
        let it = |event: &EvidenceEvent| Evidence { sandbox: row.id.clone(), event: event.clone() };
        row.told.evidence.iter().map(it).collect::<Vec<_>>()
    };
    let mut all: Vec<Evidence> = rows.flat_map(of_row).collect();
    all.sort_by_key(|it| it.event.at);
    all
}
