//! The findings: opened when they are first sighted, confirmed, closed when they are sighted no more, and kept for a
//! while after.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{DETECTORS, Limits, PERIOD, Sight, Sighting, Standing};
use crate::engine::{
    change::What,
    fact::Origin,
    finding::{Evidence, Finding, Key, Stage},
    outbox::{Held, Subject, Wait},
    time::Timestamp,
    world::{
        World,
        attempt::{Attempt, Exhibit},
    },
};

/// So many closed findings are kept; of more, the first to close are forgotten.
const CLOSED: usize = 1000;
/// So many findings are open at most; what is beyond is not told.
const OPEN: usize = 10_000;

#[derive(Debug, Default)]
pub(in crate::engine) struct Docket {
    findings: BTreeMap<Key, Finding>,
    /// Those that are closed, the first to close first.
    closed: BTreeSet<(Timestamp, Key)>,
    /// When to look, if something changed or a time is up.
    due: Option<Timestamp>,
    /// Goes up with every change of a finding.
    revision: u64,
}

/// What findings wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Wanted {
    pub(in crate::engine) records: bool,
    pub(in crate::engine) listing: bool,
}

impl Docket {
    pub(in crate::engine) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Something may be different.
    pub(in crate::engine) fn hurry(&mut self, at: Timestamp) {
        let at = at + PERIOD;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values()
    }

    pub(in crate::engine) fn get(&self, key: &Key) -> Option<&Finding> {
        self.findings.get(key)
    }

    pub(in crate::engine) fn revision(&self) -> u64 {
        self.revision
    }

    /// As it was before a restart.
    pub(in crate::engine) fn restore(&mut self, finding: Finding) {
        if let Some(at) = finding.closed_at {
            self.closed.insert((at, finding.key.clone()));
        }
        self.findings.insert(finding.key.clone(), finding);
    }

    pub(in crate::engine) fn restore_due(&mut self, due: Option<Timestamp>) {
        self.due = due;
    }

    /// Looks at the world, and gives what there is to be told, and what is wanted to be sure.
    pub(in crate::engine) fn look(
        &mut self,
        world: &World,
        limits: &Limits,
        now: Timestamp,
    ) -> (Vec<Held>, Wanted) {
        let sight = Sight { told: Some(&self.findings), ..Sight::of(world, limits, now) };
        let mut sighted = Vec::new();
        for detector in DETECTORS {
            detector(&sight, &mut sighted);
        }
        let mut told = Vec::new();
        let mut again: Option<Timestamp> = None;
        let mut wanted = Wanted::default();
        let mut seen = BTreeSet::new();
        for sighting in sighted {
            match sighting.standing {
                Standing::Watched { until } | Standing::Candidate { until } => {
                    again = again.into_iter().chain(until).min();
                }
                Standing::Passing { until } => again = again.into_iter().chain([until]).min(),
                Standing::Unverified => wanted.records = true,
                Standing::Unlisted => wanted.listing = true,
                Standing::Unsure | Standing::Confirmed => {}
            }
            if seen.insert(sighting.key.clone()) {
                self.sighted(world, sighting, now, &mut told);
            }
        }
        let is_over = |it: &&Finding| it.stage != Stage::Closed && !seen.contains(&it.key);
        let over: Vec<Key> = self.findings.values().filter(is_over).map(|it| it.key.clone()).collect();
        for key in over {
            self.close(&key, now, &mut told);
        }
        self.due = again.map(|at| at.max(now + PERIOD));
        (told, wanted)
    }

    fn sighted(&mut self, world: &World, it: Sighting, now: Timestamp, told: &mut Vec<Held>) {
        let known = self.findings.get(&it.key).filter(|known| known.stage != Stage::Closed);
        let is_new = known.is_none();
        let was_confirmed = known.is_some_and(|known| known.stage == Stage::Confirmed);
        let is_early = matches!(
            it.standing,
            Standing::Watched { .. } | Standing::Unsure | Standing::Unverified | Standing::Unlisted
        );
        if is_new && (is_early || self.open() >= OPEN) {
            return;
        }
        let is_sure = matches!(it.standing, Standing::Confirmed | Standing::Passing { .. });
        let confirmed = was_confirmed || is_sure;
        let opened_at = known.map_or(now, |known| known.opened_at);
        let confirmed_at = known.and_then(|known| known.confirmed_at).or_else(|| confirmed.then_some(now));
        let mut finding = Finding {
            stage: if confirmed { Stage::Confirmed } else { Stage::Candidate },
            since: known.map_or(it.since, |known| known.since.min(it.since)),
            opened_at,
            confirmed_at,
            closed_at: None,
            gapped: it.gapped,
            evidence: Vec::new(),
            programs: Vec::new(),
            pod: it.pod,
            sandboxes: it.sandboxes,
            severity: it.severity,
            kind: it.kind,
            key: it.key,
        };
        match self.findings.get_mut(&finding.key) {
            Some(before) if is_new => {
                self.closed.retain(|(_, key)| *key != before.key);
            }
            // What was told of it is kept until there is more.
            Some(before) => {
                finding.evidence = mem::take(&mut before.evidence);
                finding.programs = mem::take(&mut before.programs);
                if world.learn_versions(&mut finding.programs) {
                    self.revision += 1;
                }
            }
            None => {}
        }
        if is_new {
            let opened = Finding { stage: Stage::Candidate, confirmed_at: None, ..finding.clone() };
            told.push(held(opened, now, What::FindingOpened));
        }
        if confirmed && !was_confirmed {
            told.push(held(finding.clone(), now, What::FindingConfirmed));
        }
        if self.findings.get(&finding.key).is_none_or(|before| !is_same(before, &finding)) {
            self.revision += 1;
        }
        self.findings.insert(finding.key.clone(), finding);
    }

    fn close(&mut self, key: &Key, now: Timestamp, told: &mut Vec<Held>) {
        let Some(finding) = self.findings.get_mut(key) else { return };
        finding.stage = Stage::Closed;
        finding.closed_at = Some(now);
        self.revision += 1;
        told.push(held(finding.clone(), now, What::FindingClosed));
        self.closed.insert((now, key.clone()));
        if self.closed.len() > CLOSED
            && let Some((_, first)) = self.closed.pop_first()
        {
            self.findings.remove(&first);
        }
    }

    fn open(&self) -> usize {
        self.findings.len() - self.closed.len()
    }

    /// Adds to a finding that leaves what was told of its sandboxes until then, and keeps it with that.
    pub(in crate::engine) fn complete(&mut self, finding: &mut Finding, world: &World) {
        finding.evidence = evidence(finding, world);
        finding.programs = world.programs_of(finding);
        let Some(kept) = self.findings.get_mut(&finding.key) else { return };
        // What is forgotten since is no reason to forget it here.
        if !finding.evidence.is_empty() {
            kept.evidence.clone_from(&finding.evidence);
        }
        if !finding.programs.is_empty() {
            kept.programs.clone_from(&finding.programs);
        }
        self.revision += 1;
    }
}

/// Whether two sightings of one finding say the same, but for what was told of it.
fn is_same(one: &Finding, other: &Finding) -> bool {
    let verdict = |it: &Finding| (it.stage, it.severity, it.since, it.gapped);
    verdict(one) == verdict(other)
        && one.kind == other.kind
        && one.pod == other.pod
        && one.sandboxes == other.sandboxes
}

/// A verdict is the agent's own, and waits for nothing: its pod is named as far as it is known.
fn held(finding: Finding, at: Timestamp, what: fn(Box<Finding>) -> What) -> Held {
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
    let rows = finding.sandboxes.iter().filter_map(|id| world.attempts.get(id));
    let of_row = |row: &Attempt| {
        let it = |exhibit: &Exhibit| Evidence { sandbox: row.id.clone(), exhibit: exhibit.clone() };
        row.exhibits.iter().map(it).collect::<Vec<_>>()
    };
    let mut all: Vec<Evidence> = rows.flat_map(of_row).collect();
    all.sort_by_key(|it| it.exhibit.at);
    all
}
