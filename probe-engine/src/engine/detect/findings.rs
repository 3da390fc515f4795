//! The tracked findings. A finding opens at its first detection, is confirmed, closes when it is not detected
//! any more, and is kept for a while after that.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{Detection, Found, Verdict, blind_spot, closed::Closed};
use crate::{
    engine::{
        queued_change::{QueuedChange, Subject, Wait},
        world::{World, lookup},
    },
    model::{
        change::{ChangeKind, Evidence, Finding, Worst},
        fact::Origin,
        finding::{Blind, BlindSpot, FindingKind, Key, Kind, Revision, Stage},
        time::Timestamp,
    },
};

/// At most this many findings are open. Further ones are left out, and counted.
const OPEN: usize = 10_000;
/// This many findings of each kind may be open however many there are of others, so that thousands of one
/// kind do not hide worse ones.
const OF_EACH_KIND: usize = 100;

/// The open and the closed findings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    rows: BTreeMap<Key, Row>,
    /// The number of looks so far.
    pub(super) looks: u64,
    closed: Closed,
    pub(super) revision: Revision,
    /// How many findings of each kind are open.
    open: BTreeMap<FindingKind, usize>,
    /// How many detections of each kind the last look did not report, because too many findings were open.
    left_out: BTreeMap<FindingKind, u64>,
    /// Open findings that are about another subject now, or whose subject has come to its end. Their evidence
    /// is that of before.
    outdated: BTreeSet<Key>,
}

#[derive(Debug)]
struct Row {
    finding: Finding,
    /// The number of the look that last detected it.
    detected: u64,
}

impl Findings {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.rows.values().map(|row| &row.finding)
    }

    /// Returns the findings that are not closed.
    pub(super) fn open(&self) -> impl Iterator<Item = &Finding> {
        self.iter().filter(|it| it.stage != Stage::Closed)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Finding> {
        self.rows.get(key).map(|row| &row.finding)
    }

    pub(super) fn restore(&mut self, finding: Finding) {
        // A damaged state may have a key twice. The last one counts.
        if let Some(Row { finding: before, .. }) = self.rows.remove(&finding.key) {
            self.forget(&before);
        }
        self.closed.add(&finding);
        if finding.closed_at.is_none() {
            *self.open.entry((&finding.kind).into()).or_default() += 1;
        }
        if let (Kind::BlindSpot(BlindSpot { spot: Blind::LeftOut { count }, weaker }), None) =
            (&finding.kind, finding.closed_at)
        {
            self.left_out.extend(weaker.iter().map(|kind| (*kind, *count)));
        }
        self.rows.insert(finding.key.clone(), Row { finding, detected: 0 });
        self.bound_closed();
    }

    /// Takes a removed finding out of the counts.
    fn forget(&mut self, finding: &Finding) {
        if finding.closed_at.is_some() {
            self.closed.remove(finding);
        } else if let Some(open) = self.open.get_mut(&FindingKind::from(&finding.kind)) {
            *open = open.saturating_sub(1);
        }
    }

    /// Opens, confirms and closes findings. `found` has the kinds that were judged. An open finding of such a
    /// kind that was not detected closes.
    pub(super) fn update(&mut self, world: &World, found: Vec<Found>, now: Timestamp) -> Vec<QueuedChange> {
        let mut events = Vec::new();
        self.looks += 1;
        let before = mem::take(&mut self.left_out);
        let mut early: BTreeMap<FindingKind, u64> = BTreeMap::new();
        // If two detections have the same key, the first counts.
        let mut unreported = BTreeSet::new();
        let mut kinds: Vec<&'static str> = Vec::new();
        for (kind, detections) in found {
            kinds.push(kind.into());
            for detection in detections {
                if !self.is_known(&detection) && !unreported.contains(&detection.key) {
                    if self.is_unreported(&detection) {
                        let count = if is_early(&detection) { &mut early } else { &mut self.left_out };
                        *count.entry(kind).or_default() += 1;
                        unreported.insert(detection.key);
                    } else {
                        self.detected(world, detection, now, &mut events);
                    }
                }
            }
        }
        self.keep_left_out(&before, &early);
        if let Some(it) = self.of_left_out(now) {
            if !self.is_known(&it) {
                self.detected(world, it, now, &mut events);
            }
        } else {
            self.close(&blind_spot::left_out_key(), now, &mut events);
        }
        kinds.sort_unstable();
        let over: Vec<Key> = kinds.into_iter().flat_map(|kind| self.not_detected(kind)).cloned().collect();
        for key in over {
            self.close(&key, now, &mut events);
        }
        events
    }

    /// Keeps detections left out that only cannot be verified at the moment. If their kind has room, they are
    /// not counted: they would be reported.
    fn keep_left_out(&mut self, before: &BTreeMap<FindingKind, u64>, early: &BTreeMap<FindingKind, u64>) {
        for (kind, count) in before {
            let sure = self.left_out.get(kind).copied().unwrap_or(0);
            let kept = (*count).min(sure + early.get(kind).copied().unwrap_or(0));
            if kept > sure && !self.has_room(*kind) {
                self.left_out.insert(*kind, kept);
            }
        }
    }

    fn not_detected(&self, kind: &str) -> impl Iterator<Item = &Key> {
        let rows = self.rows.range(Key::new(kind, &[""])..);
        rows.take_while(move |(key, _)| key.kind() == kind)
            .filter(|(_, row)| row.finding.stage != Stage::Closed && row.detected < self.looks)
            .map(|(key, _)| key)
    }

    /// Fills in the versions of programs that became known.
    pub(super) fn learn_versions(&mut self, world: &World) {
        for row in self.rows.values_mut().filter(|row| row.finding.stage != Stage::Closed) {
            if world.records.learn_versions(&mut row.finding.programs) {
                self.revision.meaning += 1;
            }
        }
    }

    /// Whether the detection adds nothing to a known finding, or has the key of an earlier detection of this
    /// look. This check keeps a look cheap when there are thousands of findings.
    fn is_known(&mut self, it: &Detection) -> bool {
        let Some(Row { finding, detected }) = self.rows.get_mut(&it.key) else { return false };
        if *detected == self.looks {
            return true;
        }
        if finding.stage == Stage::Closed || !is_same(finding, it) {
            return false;
        }
        *detected = self.looks;
        true
    }

    /// Whether the detection has no open finding and opens none now.
    pub(super) fn is_unreported(&self, it: &Detection) -> bool {
        let is_new = self.get(&it.key).is_none_or(|known| known.stage == Stage::Closed);
        is_new && (is_early(it) || !self.has_room((&it.kind).into()))
    }

    fn has_room(&self, kind: FindingKind) -> bool {
        // The finding about left out ones does not count.
        self.number() - usize::from(self.reports_left_out()) < OPEN
            || self.open.get(&kind).is_none_or(|open| *open < OF_EACH_KIND)
    }

    fn reports_left_out(&self) -> bool {
        self.get(&blind_spot::left_out_key()).is_some_and(|it| it.stage != Stage::Closed)
    }

    /// Whether the last look left out detections.
    pub(super) fn is_full(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// Whether there is room now for detections that were left out.
    pub(super) fn has_room_again(&self) -> bool {
        self.left_out.keys().any(|kind| self.has_room(*kind))
    }

    /// Returns the detection that others are left out. There is always room for it.
    pub(super) fn of_left_out(&self, now: Timestamp) -> Option<Detection> {
        self.is_full().then(|| blind_spot::left_out(&self.left_out, now))
    }

    /// Opens a finding, or updates an open one.
    fn detected(&mut self, world: &World, it: Detection, now: Timestamp, events: &mut Vec<QueuedChange>) {
        let before = self.rows.remove(&it.key).map(|row| row.finding);
        if let Some(before) = &before {
            self.closed.remove(before);
        }
        let mut known = before.filter(|before| before.stage != Stage::Closed);
        let is_new = known.is_none();
        let stage = stage_of(known.as_ref(), &it);
        let mut finding = Finding {
            stage,
            since: known.as_ref().map_or(it.since, |known| since(known, &it)),
            opened_at: known.as_ref().map_or(now, |known| known.opened_at),
            confirmed_at: known
                .as_ref()
                .and_then(|known| known.confirmed_at)
                .or_else(|| (stage == Stage::Confirmed).then_some(now)),
            closed_at: None,
            gapped: it.gapped,
            // Evidence stays until there is more of it.
            evidence: known.as_mut().map(|known| mem::take(&mut known.evidence)).unwrap_or_default(),
            programs: known.as_mut().map(|known| mem::take(&mut known.programs)).unwrap_or_default(),
            runtimes: match known.as_mut() {
                Some(known) => mem::take(&mut known.runtimes),
                None => world.records.sockets_of(&it.sandboxes),
            },
            folders: match known.as_mut() {
                Some(known) => mem::take(&mut known.folders),
                None => world.records.folders(),
            },
            worst: known.as_mut().and_then(|known| worst(known, &it)),
            pod: it.pod,
            sandboxes: it.sandboxes,
            severity: it.severity,
            kind: it.kind,
            key: it.key,
        };
        world.records.learn_versions(&mut finding.programs);
        if is_new {
            *self.open.entry((&finding.kind).into()).or_default() += 1;
        }
        if known.as_ref().is_none_or(|known| known.stage != stage) {
            self.count_change();
        } else if known.as_ref().is_some_and(|known| !means_same(known, &finding)) {
            self.revision.meaning += 1;
            if finding.kind.explain().follows_worst() {
                self.outdated.insert(finding.key.clone());
            }
        }
        if is_new {
            let opened = Finding { stage: Stage::Candidate, confirmed_at: None, ..finding.clone() };
            events.push(held(opened, now, ChangeKind::FindingOpened));
        }
        if stage == Stage::Confirmed && known.is_none_or(|known| known.stage != Stage::Confirmed) {
            events.push(held(finding.clone(), now, ChangeKind::FindingConfirmed));
        }
        self.rows.insert(finding.key.clone(), Row { finding, detected: self.looks });
    }

    /// Notes that the set of findings or their stages changed.
    fn count_change(&mut self) {
        self.revision.stages += 1;
        self.revision.meaning += 1;
    }

    fn close(&mut self, key: &Key, now: Timestamp, events: &mut Vec<QueuedChange>) {
        let Some(Row { finding, .. }) = self.rows.get_mut(key) else { return };
        if finding.stage == Stage::Closed {
            return;
        }
        if let Some(open) = self.open.get_mut(&FindingKind::from(&finding.kind)) {
            *open = open.saturating_sub(1);
        }
        if let Some(worst) = finding.worst.take() {
            (finding.kind, finding.severity, finding.pod) = (worst.kind, worst.severity, worst.pod);
        }
        finding.stage = Stage::Closed;
        finding.closed_at = Some(now);
        events.push(held(finding.clone(), now, ChangeKind::FindingClosed));
        self.closed.add(finding);
        self.bound_closed();
        self.count_change();
    }

    fn bound_closed(&mut self) {
        while let Some(key) = self.closed.pop_too_many() {
            self.rows.remove(&key);
        }
        while let Some(key) = self.closed.pop_evidence() {
            if let Some(row) = self.rows.get_mut(&key) {
                row.finding.evidence = Vec::new();
            }
        }
    }

    /// Returns the number of open findings.
    pub(super) fn number(&self) -> usize {
        self.rows.len() - self.closed.len()
    }

    /// Renews the evidence of the findings that changed, when the events so far are kept.
    pub(super) fn renew_evidence(&mut self, world: &World) {
        for key in mem::take(&mut self.outdated) {
            let Some(Row { finding, .. }) = self.rows.get_mut(&key) else { continue };
            let evidence = evidence(finding, world);
            if finding.stage != Stage::Closed && !evidence.is_empty() {
                finding.evidence = evidence;
                self.revision.meaning += 1;
            }
        }
    }

    /// Adds the evidence so far to a finding that is about to be sent, and keeps it.
    pub(super) fn complete(&mut self, finding: &mut Finding, world: &World) {
        finding.evidence = evidence(finding, world);
        finding.programs = lookup::program::of_finding(world, finding);
        let Some(Row { finding: kept, .. }) = self.rows.get_mut(&finding.key) else { return };
        // Evidence that the world has since forgotten stays here.
        if !finding.evidence.is_empty() {
            kept.evidence.clone_from(&finding.evidence);
        }
        if !finding.programs.is_empty() {
            kept.programs.clone_from(&finding.programs);
        }
        self.closed.add(kept);
        self.bound_closed();
        self.count_change();
    }
}

/// Returns the largest totals of an open finding, after this detection.
fn worst(known: &mut Finding, it: &Detection) -> Option<Box<Worst>> {
    let before = known.worst.take();
    let kind = it.kind.explain().worst(before.as_ref().map_or(&known.kind, |before| &before.kind))?;
    let severity = before.as_ref().map_or(known.severity, |before| before.severity).max(it.severity);
    let pod = before.map_or_else(|| known.pod.clone(), |before| before.pod);
    Some(Box::new(Worst { kind, severity, pod: pod.filter(|pod| it.pod.as_ref() == Some(pod)) }))
}

/// Whether a detection is too early for a finding.
fn is_early(it: &Detection) -> bool {
    matches!(it.verdict, Verdict::Watched { .. } | Verdict::Unsure | Verdict::Unverified | Verdict::Unlisted)
}

/// Returns since when an open finding lasts, after this detection.
fn since(known: &Finding, it: &Detection) -> Timestamp {
    if it.kind.explain().follows_worst() { it.since } else { known.since.min(it.since) }
}

/// Whether a detection says exactly what an open finding says.
fn is_same(known: &Finding, it: &Detection) -> bool {
    (known.stage, known.severity, known.gapped) == (stage_of(Some(known), it), it.severity, it.gapped)
        && known.since == since(known, it)
        && known.kind == it.kind
        && known.pod == it.pod
        && known.sandboxes == it.sandboxes
}

/// Whether a detection says what a finding says, apart from numbers that change while the problem lasts.
pub(super) fn matches_detection(known: &Finding, it: &Detection) -> bool {
    (known.stage, known.severity, known.gapped) == (stage_of(Some(known), it), it.severity, it.gapped)
        && known.since == since(known, it)
        && known.pod == it.pod
        && (it.kind.explain().shows_some() || known.sandboxes == it.sandboxes)
        && known.kind.means(&it.kind)
}

/// Whether two states of a finding differ only in numbers that change while the problem lasts.
fn means_same(before: &Finding, now: &Finding) -> bool {
    (before.stage, before.severity, before.gapped) == (now.stage, now.severity, now.gapped)
        && before.pod == now.pod
        && (now.kind.explain().shows_some() || before.sandboxes == now.sandboxes)
        && before.kind.means(&now.kind)
}

/// Returns the stage of a finding with this detection. A confirmed finding stays confirmed until it closes.
fn stage_of(known: Option<&Finding>, it: &Detection) -> Stage {
    let was_confirmed = known.is_some_and(|known| known.stage == Stage::Confirmed);
    let is_sure = matches!(it.verdict, Verdict::Confirmed | Verdict::Passing { .. });
    if was_confirmed || is_sure { Stage::Confirmed } else { Stage::Candidate }
}

/// Makes the event of a finding. The agent itself makes it, so it waits for nothing, and its pod has the name
/// that is known now.
fn held(finding: Finding, at: Timestamp, what: fn(Box<Finding>) -> ChangeKind) -> QueuedChange {
    let subject = Subject {
        named: finding.pod.clone(),
        sandbox: finding.sandboxes.last().cloned(),
        ..Subject::default()
    };
    let what = what(Box::new(finding));
    QueuedChange { at, origin: Origin::Agent, late: false, subject, wait: Wait::Nothing, what }
}

/// Returns the kept events of a finding's sandboxes.
fn evidence(finding: &Finding, world: &World) -> Vec<Evidence> {
    let mut all = Vec::new();
    for row in finding.sandboxes.iter().filter_map(|id| world.sandboxes.recall(id)) {
        let events = row.reported.evidence.iter();
        all.extend(events.map(|event| Evidence { sandbox: row.id.clone(), event: event.clone() }));
    }
    all.sort_by_key(|it| it.event.at);
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Detection, FindingKind, Findings, Found, OF_EACH_KIND, OPEN, Verdict};
    use crate::{
        engine::{detect::closed::CLOSED_EVIDENCE, world::World},
        model::{
            change::{ChangeKind, Evidence, EvidenceEvent, Finding},
            fact::Origin,
            finding::{Blind, BlindSpot, CniQueue, Key, Kind, Severity, Stage},
            id::ContainerId,
            time::Timestamp,
        },
    };

    fn detection(kind: Kind, number: usize) -> Detection {
        let part = format!("{number:05}");
        Detection::new(kind, &[&part], Severity::Warning, Timestamp(1), Verdict::Confirmed)
    }

    fn files(count: usize) -> Found {
        let spot = |number: usize| Blind::File { path: number.to_string() };
        let kind = |number| Kind::from(BlindSpot { spot: spot(number), weaker: Vec::new() });
        (FindingKind::BlindSpot, (0..count).map(|number| detection(kind(number), number)).collect())
    }

    fn queues(count: usize) -> Found {
        let kind =
            Kind::from(CniQueue { waiting: 20, oldest: Duration::from_secs(1), plugin: "bridge".to_owned() });
        (FindingKind::CniQueue, (0..count).map(|number| detection(kind.clone(), number)).collect())
    }

    /// How many findings of these kinds are open, and what is reported about those that are left out.
    fn seen(findings: &Findings) -> (usize, usize, Option<(u64, Vec<FindingKind>)>) {
        let (mut files, mut queues, mut told) = (0, 0, None);
        for it in findings.open() {
            if let Kind::BlindSpot(BlindSpot { spot: Blind::LeftOut { count }, weaker }) = &it.kind {
                told = Some((*count, weaker.clone()));
            } else if matches!(it.kind, Kind::CniQueue(_)) {
                queues += 1;
            } else {
                files += 1;
            }
        }
        (files, queues, told)
    }

    /// The keys of the findings that have evidence.
    fn with_evidence(findings: &Findings) -> Vec<String> {
        findings.iter().filter(|it| !it.evidence.is_empty()).map(|it| it.key.to_string()).collect()
    }

    #[test]
    fn closed_findings_keep_a_bounded_number_of_events_as_evidence() {
        let (world, mut findings) = (World::default(), Findings::default());
        let event = EvidenceEvent {
            left_out: 0,
            at: Timestamp(1),
            origin: Origin::Kernel,
            container: None,
            netns: None,
            cgroup: None,
            what: ChangeKind::SandboxCreated,
        };
        let event = Evidence { sandbox: ContainerId::parse(&"a".repeat(64)).expect("an id"), event };
        findings.update(&world, vec![files(5)], Timestamp(1));
        for row in findings.rows.values_mut() {
            row.finding.evidence = vec![event.clone(); CLOSED_EVIDENCE / 2];
        }
        assert_eq!(with_evidence(&findings).len(), 5, "none is closed");
        // 4, 3, 2, 1 and 0 close.
        for left in (0..5).rev() {
            findings.update(&world, vec![files(left)], Timestamp(10 - u64::try_from(left).expect("few")));
        }
        let kept = ["blind_spot/00000", "blind_spot/00001"];
        assert_eq!(with_evidence(&findings), kept, "the last to close");
        assert_eq!(findings.iter().count(), 5);
        // A finding that opens again counts with its evidence again. Restored findings count as well.
        let mut restored = Findings::default();
        findings.iter().cloned().for_each(|it| restored.restore(it));
        for findings in [&mut findings, &mut restored] {
            findings.update(&world, vec![files(1)], Timestamp(20));
            for key in ["blind_spot/00003", "blind_spot/00004"] {
                let mut again = findings.get(&Key::parse(key).expect("a key")).expect("it is closed").clone();
                again.evidence = vec![event.clone(); CLOSED_EVIDENCE / 2];
                findings.restore(again);
            }
            assert_eq!(with_evidence(findings), ["blind_spot/00001", "blind_spot/00003"]);
        }
    }

    /// No agent writes such a state.
    #[test]
    fn a_finding_that_is_restored_twice_is_one() {
        let (world, mut findings) = (World::default(), Findings::default());
        findings.update(&world, vec![files(1)], Timestamp(1));
        findings.update(&world, vec![files(0)], Timestamp(2));
        let closed = findings.iter().next().expect("it is closed").clone();
        for at in 3..3000 {
            findings.restore(Finding { closed_at: Some(Timestamp(at)), ..closed.clone() });
        }
        assert_eq!((findings.iter().count(), findings.number()), (1, 0));
        findings.restore(Finding { closed_at: None, stage: Stage::Confirmed, ..closed });
        assert_eq!((findings.iter().count(), findings.number()), (1, 1));
    }

    #[test]
    fn thousands_of_one_kind_leave_room_for_others_and_left_out_ones_are_counted() {
        let (world, mut findings) = (World::default(), Findings::default());
        let mut look = |at: u64, found: Vec<Found>| {
            let events = findings.update(&world, found, Timestamp(at));
            (events.len(), seen(&findings), findings.has_room_again())
        };
        let (_, all, _) = look(1, vec![files(OPEN)]);
        assert_eq!(all, (OPEN, 0, None), "just enough");
        let queue = FindingKind::CniQueue;
        let file = FindingKind::BlindSpot;
        let (_, all, _) = look(2, vec![files(OPEN + 7), queues(1)]);
        assert_eq!(all, (OPEN, 1, Some((7, vec![file]))), "another kind comes in");
        let (events, all, _) = look(3, vec![files(OPEN + 7), queues(OF_EACH_KIND + 2)]);
        assert_eq!(all, (OPEN, OF_EACH_KIND, Some((9, vec![queue, file]))), "so many of it");
        assert_eq!(events, 2 * (OF_EACH_KIND - 1), "nothing is told twice");
        // As after a restart: what is open counts.
        let mut restored = Findings::default();
        findings.iter().cloned().for_each(|it| restored.restore(it));
        let events = restored.update(&world, vec![files(OPEN + 7), queues(OF_EACH_KIND + 2)], Timestamp(3));
        assert_eq!((events.len(), seen(&restored)), (0, seen(&findings)));
        // Detections that only cannot be verified at the moment stay left out, also after a restart.
        for findings in [&mut findings, &mut restored] {
            let told = seen(findings).2.map(|(_, kinds)| kinds);
            let (mut files, mut queues) = (files(OPEN + 7), queues(OF_EACH_KIND + 2));
            files.1[OPEN..].iter_mut().for_each(|it| it.verdict = Verdict::Unlisted);
            queues.1[OF_EACH_KIND..].iter_mut().for_each(|it| it.verdict = Verdict::Unlisted);
            let events = findings.update(&world, vec![files, queues], Timestamp(3));
            assert_eq!((events.len(), seen(findings).2.map(|(_, kinds)| kinds)), (0, told));
        }
        let mut again = Findings::default();
        findings.iter().cloned().for_each(|it| again.restore(it));
        assert!(again.is_full(), "the last agent left some out");
        let mut look = |at: u64, found: Vec<Found>| {
            let events = findings.update(&world, found, Timestamp(at));
            (events.len(), seen(&findings), findings.has_room_again())
        };
        // Findings that close make room, which the next look fills.
        let (_, all, room) = look(4, vec![files(OPEN - 500), queues(OF_EACH_KIND + 2)]);
        assert_eq!((all, room), ((OPEN - 500, OF_EACH_KIND, Some((2, vec![queue]))), true));
        let (_, all, room) = look(5, vec![files(OPEN - 500), queues(OF_EACH_KIND + 2)]);
        assert_eq!((all, room), ((OPEN - 500, OF_EACH_KIND + 2, None), false), "all are told");
    }

    /// The finding about left out ones takes no place from another.
    #[test]
    fn one_that_closes_makes_room_for_the_last_one() {
        let (world, mut findings) = (World::default(), Findings::default());
        findings.update(&world, vec![files(OPEN + 1)], Timestamp(1));
        assert_eq!(seen(&findings), (OPEN, 0, Some((1, vec![FindingKind::BlindSpot]))));
        for at in [2, 3] {
            let (kind, mut fewer) = files(OPEN + 1);
            fewer.remove(0);
            findings.update(&world, vec![(kind, fewer)], Timestamp(at));
        }
        assert_eq!(seen(&findings), (OPEN, 0, None));
    }
}
