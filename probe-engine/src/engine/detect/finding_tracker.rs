//! The findings: opened when they are first sighted, confirmed, closed when they are sighted no more, and kept for a
//! while after.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use super::{
    Detection, Limits, PERIOD, Verdict,
    judge::{Found, Judge, Situation, Want},
    leaked_address::many,
    pool,
};
use crate::{
    engine::{
        held::{Held, Subject, Wait},
        view::{ManyView, PoolView},
        world::{World, record::Waiting, sandbox::Sandbox},
    },
    model::{
        change::ChangeKind,
        fact::Origin,
        finding::{Evidence, EvidenceEvent, Finding, Key, Revision, Stage},
        time::Timestamp,
    },
};

/// So many closed findings are kept; of more, the first to close are forgotten.
const CLOSED: usize = 1000;
/// So many open findings and parts of findings are too many to be put together as often as a few.
const MANY: usize = 1000;
/// Not even the most make it rarer than so many times [`PERIOD`].
const RAREST: usize = 100;
/// So many findings are open at most; what is beyond is not told.
const OPEN: usize = 10_000;

/// In tests so many looks are compared with full ones, and then one in so many.
#[cfg(test)]
const SURE: u64 = 24;

#[derive(Debug, Default)]
pub(in crate::engine) struct FindingTracker {
    judge: Judge,
    findings: Findings,
    /// When to look, if something changed or a time is up.
    due: Option<Timestamp>,
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Findings {
    rows: BTreeMap<Key, Row>,
    /// How often it has looked.
    looks: u64,
    /// Those that are closed, the first to close first.
    closed: BTreeSet<(Timestamp, Key)>,
    revision: Revision,
}

#[derive(Debug)]
struct Row {
    finding: Finding,
    /// The look that last sighted it.
    sighted: u64,
}

/// What findings wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Wanted {
    pub(in crate::engine) records: bool,
    pub(in crate::engine) listing: bool,
}

impl FindingTracker {
    pub(in crate::engine) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Something may be different.
    pub(in crate::engine) fn arm_earlier(&mut self, at: Timestamp) {
        let at = at + self.period();
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    pub(in crate::engine) fn get(&self, key: &Key) -> Option<&Finding> {
        self.findings.get(key)
    }

    pub(in crate::engine) fn revision(&self) -> Revision {
        self.findings.revision
    }

    /// As it was before a restart.
    pub(in crate::engine) fn restore(&mut self, finding: Finding) {
        self.findings.restore(finding);
    }

    pub(in crate::engine) fn restore_due(&mut self, due: Option<Timestamp>) {
        self.due = due;
    }

    /// Looks at what changed in the world, and gives what there is to be told, and what is wanted to be sure.
    pub(in crate::engine) fn detect(
        &mut self,
        world: &mut World,
        limits: &Limits,
        now: Timestamp,
    ) -> (Vec<Held>, Wanted) {
        let changed = world.take_changed();
        let world = &*world;
        let it = Situation { told: Some(&self.findings), ..Situation::of(world, limits, now) };
        let found = self.judge.look(it, &changed);
        if changed.records {
            self.findings.learn_versions(world);
        }
        let told = self.findings.take_in(world, found, now);
        told.iter()
            .filter_map(|held| held.what.finding())
            .for_each(|it| self.judge.turned((&it.kind).into()));
        self.due = self.judge.again().map(|at| at.max(now + self.period()));
        #[cfg(test)]
        if self.findings.looks < SURE || self.findings.looks.is_multiple_of(SURE) {
            assert_eq!(self.differences(world, limits, now), Vec::<String>::new());
        }
        let wanted =
            Wanted { records: self.judge.wants(Want::Records), listing: self.judge.wants(Want::Listing) };
        (told, wanted)
    }

    /// In what a full look, right after one at what changed, differs from what is tracked: in nothing, or a rule leans on
    /// something that does not mark its subject.
    pub(in crate::engine) fn differences(
        &self,
        world: &World,
        limits: &Limits,
        now: Timestamp,
    ) -> Vec<String> {
        let it = Situation { told: Some(&self.findings), ..Situation::of(world, limits, now) };
        let (_, found) = Judge::anew(it);
        let mut anew: BTreeMap<Key, Detection> = BTreeMap::new();
        for detection in found.into_iter().flat_map(|(_, all)| all) {
            anew.entry(detection.key.clone()).or_insert(detection);
        }
        let mut differences = Vec::new();
        for (key, it) in &anew {
            match self.findings.get(key).filter(|known| known.stage != Stage::Closed) {
                Some(known) if says(known, it) => {}
                Some(known) => differences.push(format!("tracked: {known:?}\nanew: {it:?}")),
                None if self.findings.is_untold(it) => {}
                None => differences.push(format!("not tracked: {it:?}")),
            }
        }
        let gone = self.findings.open().filter(|known| !anew.contains_key(&known.key));
        differences.extend(gone.map(|known| format!("not found anew: {known:?}")));
        differences
    }

    /// Adds to a finding that leaves what was told of its sandboxes until then, and keeps it with that.
    pub(in crate::engine) fn complete(&mut self, finding: &mut Finding, world: &World) {
        self.findings.complete(finding, world);
    }

    /// The more there is to put together, the longer takes a look: it is made less often.
    fn period(&self) -> Duration {
        let times = (1 + (self.findings.number() + self.judge.size()) / MANY).min(RAREST);
        PERIOD * u32::try_from(times).unwrap_or(1)
    }

    /// What only the records tell of.
    pub(in crate::engine) fn waiting(&self) -> &Waiting {
        &self.judge.index.waiting
    }

    /// The pools of the node's networks, by the leaks that the last look found.
    pub(in crate::engine) fn pools(&self, world: &World) -> Vec<PoolView> {
        pool::count(world, &self.judge.leaks).into_iter().map(|it| it.view).collect()
    }

    /// The leaks that findings of many stand for.
    pub(in crate::engine) fn many(&self) -> Vec<ManyView> {
        many::members(&self.findings, &self.judge.leaks)
    }
}

impl Findings {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.rows.values().map(|row| &row.finding)
    }

    /// What is not over.
    pub(super) fn open(&self) -> impl Iterator<Item = &Finding> {
        self.iter().filter(|it| it.stage != Stage::Closed)
    }

    fn get(&self, key: &Key) -> Option<&Finding> {
        self.rows.get(key).map(|row| &row.finding)
    }

    fn restore(&mut self, finding: Finding) {
        if let Some(at) = finding.closed_at {
            self.closed.insert((at, finding.key.clone()));
        }
        self.rows.insert(finding.key.clone(), Row { finding, sighted: 0 });
    }

    /// Opens, confirms and closes. What is open of a kind that was looked at, and was not found, is over.
    fn take_in(&mut self, world: &World, found: Vec<Found>, now: Timestamp) -> Vec<Held> {
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
    fn learn_versions(&mut self, world: &World) {
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
    fn is_untold(&self, it: &Detection) -> bool {
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
    fn number(&self) -> usize {
        self.rows.len() - self.closed.len()
    }

    /// Adds to a finding that leaves what was told of its sandboxes until then, and keeps it with that.
    fn complete(&mut self, finding: &mut Finding, world: &World) {
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
fn says(known: &Finding, it: &Detection) -> bool {
    (known.stage, known.severity, known.gapped) == (stage_of(Some(known), it), it.severity, it.gapped)
        && known.since <= it.since
        && known.pod == it.pod
        && (it.kind.shows_some() || known.sandboxes == it.sandboxes)
        && known.kind.means(&it.kind)
}

/// Whether two states of a finding differ only in numbers that move while it goes on.
fn means_same(before: &Finding, now: &Finding) -> bool {
    (before.stage, before.severity, before.gapped) == (now.stage, now.severity, now.gapped)
        && before.pod == now.pod
        && (now.kind.shows_some() || before.sandboxes == now.sandboxes)
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
