//! What a recording has to compare: how its pods started, what was ordered for each of them, and what was
//! found.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::Path,
};

use crate::{
    cli::replay::{replayed_with, unreadable},
    engine::{Engine, share, view::BalanceView},
    model::{
        change::{Change, ChangeKind, CniCall, Finding},
        fact::{Loss, Origin, PodName},
        finding::{self, Key, Severity, Stage},
        id::{ContainerId, PodUid},
        phase::{Kind, Start},
        time::Timestamp,
    },
    recording::Header,
    replay::{Replayed, Step},
};

/// At most this many attachments count; of more, as many in proportion.
const MAX_ATTACHMENTS: u64 = 10_000;

/// What a recording has to compare.
pub(super) struct Recorded {
    pub(super) header: Header,
    /// Seconds of each phase, of the whole start (`None`) and until the containers listen.
    pub(super) starts: Vec<(Option<Kind>, Vec<f64>)>,
    /// The pods whose sandboxes were seen to be made: none was there before the recording.
    pub(super) pods: Vec<Pod>,
    pub(super) findings: BTreeMap<&'static str, Found>,
    /// For each attachment that is over, 1 if its addresses were released, else 0. Empty: it is not known.
    pub(super) released: Vec<f64>,
    /// Where it was cut off, if it was.
    pub(super) cut_off: Option<String>,
    /// How often records were lost that can be about pods.
    pub(super) gaps: u64,
}

/// What was ordered for a pod, and its findings by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) orders: Orders,
    pub(super) findings: BTreeMap<&'static str, u32>,
}

/// What the kubelet and the runtime ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    /// 1 if the pod's containers ran in one of its sandboxes.
    pub(super) started: u32,
    pub(super) sandboxes: u32,
    pub(super) adds: u32,
    pub(super) failed_adds: u32,
    pub(super) failed_dels: u32,
}

/// The confirmed findings of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Without those that began before the recording, which the recording before it has, too.
    pub(super) count: usize,
    /// How many of these are about no pod of this recording; of leaks, how many addresses.
    pub(super) others: usize,
    /// Also of those that began before the recording.
    pub(super) worst: Severity,
}

/// By UID, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PodId {
    Uid(PodUid),
    Name(Option<String>, Option<String>),
}

/// What a recording's events say.
#[derive(Default)]
struct Events {
    /// When the recording begins.
    began: Timestamp,
    /// The latest report about each sandbox: a start that goes on is reported again.
    starts: BTreeMap<ContainerId, Start>,
    sandboxes: BTreeMap<ContainerId, SandboxSeen>,
    findings: BTreeMap<Key, FindingSeen>,
    /// How many addresses the findings from before the recording were about then.
    earlier_counts: BTreeMap<Key, usize>,
    gaps: u64,
    /// The pods that had a sandbox before the recording.
    earlier: BTreeSet<PodId>,
    /// The balance before the recording.
    balance: Vec<BalanceView>,
}

#[derive(Default)]
struct SandboxSeen {
    /// The latest name, which may have become known late.
    pod: Option<PodId>,
    orders: Orders,
    /// It was there before the recording.
    was_found: bool,
}

struct FindingSeen {
    kind: &'static str,
    severity: Severity,
    pod: Option<PodId>,
    since: Timestamp,
    /// How many addresses it is about; 1 if it is about none.
    count: usize,
}

impl Recorded {
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let mut events = Events::default();
        let Replayed { header, engine, cut_off, .. } = replayed_with(file, |engine, step| match step {
            Step::Begin(at) => events.begin(engine, at),
            Step::Event(change) => events.take(*change),
        })?;
        let starts = share::durations(events.starts.values()).into_iter();
        let starts = starts.map(|(kind, spans)| (kind, spans.iter().map(|it| it.as_secs_f64()).collect()));
        let starts = starts.collect();
        let mut pods = events.pods();
        let findings = events.findings(&engine, &mut pods);
        Ok(Self {
            header,
            starts,
            pods: pods.into_values().collect(),
            findings,
            released: released(&engine.balance(), &events.balance),
            cut_off: cut_off.map(|error| unreadable(file, &error).to_string()),
            gaps: events.gaps,
        })
    }

    /// Returns whether something that happened may not be in it.
    pub(super) fn is_partial(&self) -> bool {
        self.cut_off.is_some() || self.gaps > 0
    }

    /// Returns the seconds of a phase, for each start that had it.
    pub(super) fn seconds(&self, kind: Option<&Kind>) -> &[f64] {
        let found = self.starts.iter().find(|(it, _)| it.as_ref() == kind);
        found.map_or(&[], |(_, seconds)| seconds)
    }
}

impl Events {
    /// Notes what was there before the recording: `run --record` begins it with the state of the last agent.
    fn begin(&mut self, engine: &Engine, at: Timestamp) {
        self.began = at;
        self.balance = engine.balance();
        let pods = engine.pods().into_iter().filter(|pod| !pod.sandboxes.is_empty());
        self.earlier = pods.filter_map(|pod| PodId::of(&pod.named())).collect();
        let confirmed = engine.findings().filter(|it| it.stage == Stage::Confirmed);
        self.findings = confirmed.map(|it| (it.key.clone(), FindingSeen::of(it))).collect();
        let counts = self.findings.iter().map(|(key, seen)| (key.clone(), seen.count));
        self.earlier_counts = counts.collect();
    }

    fn take(&mut self, change: Change) {
        let Change { at, origin, context, what, .. } = change;
        if let ChangeKind::PodStarted(start) = what {
            self.starts.insert(start.sandbox.clone(), *start);
            return;
        }
        if let ChangeKind::FindingConfirmed(it) = what {
            self.findings.insert(it.key.clone(), FindingSeen::of(&it));
            return;
        }
        if let ChangeKind::Gap { what, lasted, .. } = what {
            let is_earlier = matches!(what, Loss::NoAgent | Loss::State)
                || lasted.is_some_and(|lasted| at.saturating_sub(lasted) < self.began);
            self.gaps += u64::from(what.is_grave() && !is_earlier);
            return;
        }
        let Some(id) = context.sandbox else { return };
        let row = self.sandboxes.entry(id).or_default();
        let pod = context.pod.map(|it| PodName { namespace: it.namespace, name: it.name, uid: it.uid });
        row.pod = pod.as_ref().and_then(PodId::of).or(row.pod.take());
        match what {
            ChangeKind::SandboxCreated if origin == Origin::Listed => row.was_found = true,
            ChangeKind::SandboxCreated => row.orders.sandboxes = 1,
            ChangeKind::CniFinished { call, end: Some(end), .. } => row.orders.count(&call, end.code == 0),
            _ => {}
        }
    }

    /// Takes out the pods with sandboxes that were seen to be made, and none from before the recording. Calls
    /// for sandboxes of before a reboot count for their pods.
    fn pods(&mut self) -> BTreeMap<PodId, Pod> {
        let mut pods: BTreeMap<PodId, Pod> = BTreeMap::new();
        for (sandbox, SandboxSeen { pod, mut orders, was_found }) in mem::take(&mut self.sandboxes) {
            let Some(id) = pod else { continue };
            if was_found {
                self.earlier.insert(id);
                continue;
            }
            orders.started = self.starts.get(&sandbox).is_some_and(|start| start.complete).into();
            pods.entry(id).or_default().orders.add(orders);
        }
        pods.retain(|id, pod| pod.orders.sandboxes > 0 && !self.earlier.contains(id));
        pods
    }

    /// Takes out the findings by kind, and gives each pod its own. A finding may have become worse after it
    /// was confirmed. A listing finds again what was there before the recording, so that is not counted.
    fn findings(
        &mut self,
        engine: &Engine,
        pods: &mut BTreeMap<PodId, Pod>,
    ) -> BTreeMap<&'static str, Found> {
        let mut findings: BTreeMap<&'static str, Found> = BTreeMap::new();
        for (key, seen) in mem::take(&mut self.findings) {
            let latest = engine.finding(&key).filter(|it| it.confirmed_at.is_some()).map(FindingSeen::of);
            let FindingSeen { kind, severity, pod, since, count } = latest.unwrap_or(seen);
            let own = pod.and_then(|id| pods.get_mut(&id));
            // Leaks may have joined one from before the recording.
            let earlier = self.earlier_counts.get(&key).copied();
            let is_older = earlier.is_none() && since < self.began;
            let new = if is_older { 0 } else { count.saturating_sub(earlier.unwrap_or_default()) };
            let is_open = engine.finding(&key).is_some_and(|it| it.stage == Stage::Confirmed);
            if own.is_none() && new == 0 && !is_open {
                // It is from before the recording, and over.
                continue;
            }
            let row = findings.entry(kind).or_insert(Found { count: 0, others: 0, worst: severity });
            row.worst = row.worst.max(severity);
            if let Some(pod) = own {
                *pod.findings.entry(kind).or_default() += 1;
                row.count += 1;
            } else {
                row.count += new;
                row.others += new;
            }
        }
        findings
    }
}

impl FindingSeen {
    fn of(it: &Finding) -> Self {
        let count = if let finding::Kind::LeakedAddress(leak) = &it.kind { leak.count() } else { 1 };
        Self {
            kind: it.kind.into_str(),
            severity: it.severity,
            pod: it.pod.as_ref().and_then(PodId::of),
            since: it.since,
            count: usize::try_from(count).unwrap_or(usize::MAX),
        }
    }
}

impl Orders {
    /// Counts a call of the runtime for a pod's interface.
    fn count(&mut self, call: &CniCall, has_succeeded: bool) {
        if call.delegated || call.called_by.is_some() || call.ifname.as_deref() == Some("lo") {
            return;
        }
        match (call.command.as_str(), has_succeeded) {
            ("ADD", true) => self.adds += 1,
            ("ADD", false) => self.failed_adds += 1,
            ("DEL", false) => self.failed_dels += 1,
            _ => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.started = self.started.max(other.started);
        self.sandboxes += other.sandboxes;
        self.adds += other.adds;
        self.failed_adds += other.failed_adds;
        self.failed_dels += other.failed_dels;
    }
}

impl PodId {
    fn of(pod: &PodName) -> Option<Self> {
        match &pod.uid {
            Some(uid) => Some(Self::Uid(uid.clone())),
            None if pod.name.is_some() => Some(Self::Name(pod.namespace.clone(), pod.name.clone())),
            None => None,
        }
    }
}

/// Returns 1 for each attachment that was released since `before`, and 0 for each that is over since then and
/// was not, as far as anything shows it.
fn released(balance: &[BalanceView], before: &[BalanceView]) -> Vec<f64> {
    let [Some(now), Some(before)] = [balance, before].map(totals) else { return Vec::new() };
    let released = now.0.saturating_sub(before.0);
    let over = now.1.saturating_sub(before.1);
    let kept = over.min(MAX_ATTACHMENTS);
    let share = u128::from(released.min(over)) * u128::from(kept) / u128::from(over.max(1));
    (0..u128::from(kept)).map(|place| if place < share { 1.0 } else { 0.0 }).collect()
}

/// Returns how many attachments were released, and how many are over. None: an account does not say how many
/// releases nothing verifies.
fn totals(balance: &[BalanceView]) -> Option<(u64, u64)> {
    balance.iter().try_fold((0, 0), |(released, over): (u64, u64), it| {
        let by_del = it.released.saturating_add(it.released_without_netns);
        let released = released.saturating_add(by_del.saturating_sub(it.unverified?));
        Some((released, over.saturating_add(by_del).saturating_add(it.unreleased)))
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path, time::Duration};

    use super::{BalanceView, Events, PodId, Severity, released};
    use crate::{
        cli::replay::replayed,
        engine::world::CheckpointEntry,
        model::{
            change::{Change, ChangeKind, Context, PodRef},
            fact::{Loss, Origin},
            id::ContainerId,
            time::Timestamp,
        },
    };

    fn created(pod: &str, sandbox: char, origin: Origin) -> Change {
        let pod = PodRef { name: Some(pod.to_owned()), ..PodRef::default() };
        let sandbox = ContainerId::parse(&sandbox.to_string().repeat(64));
        let context = Context { pod: Some(pod), sandbox, ..Context::default() };
        let what = ChangeKind::SandboxCreated;
        Change { seq: 1, at: Timestamp(1), origin, late: false, context, what }
    }

    #[test]
    fn a_pod_with_an_earlier_sandbox_is_left_out() {
        let mut events = Events::default();
        events.take(created("earlier", 'a', Origin::Listed));
        events.take(created("earlier", 'b', Origin::Kernel));
        events.take(created("new", 'c', Origin::Kernel));
        // The end of a sandbox of before a reboot.
        events.take(Change { what: ChangeKind::CgroupEmptied, ..created("new", 'd', Origin::Kernel) });
        let pods: Vec<PodId> = events.pods().into_keys().collect();
        assert_eq!(pods, [PodId::Name(None, Some("new".to_owned()))]);
    }

    #[test]
    fn a_finding_is_as_severe_as_it_is_at_the_end() {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
        let mut engine = replayed(&demo).expect("a recording").engine;
        let mut events = Events::default();
        events.begin(&engine, Timestamp::ZERO);
        let mut worse = engine.findings().next().expect("a finding").clone();
        worse.severity = Severity::Critical;
        let kind = worse.kind.into_str();
        engine.restore(CheckpointEntry::Finding(Box::new(worse)));
        let found = events.findings(&engine, &mut BTreeMap::new());
        assert_eq!((found.len(), found[kind].worst), (3, Severity::Critical));
    }

    /// In the second recording the first listing finds again what leaked in the first.
    #[test]
    fn what_began_before_the_recording_is_in_no_number() {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
        let engine = replayed(&demo).expect("a recording").engine;
        let leak = engine.findings().find(|it| it.kind.into_str() == "leaked_address").expect("a leak");
        for (began, count) in [(leak.since, 1), (leak.since + Duration::from_nanos(1), 0)] {
            let mut events = Events { began, ..Events::default() };
            let what = ChangeKind::FindingConfirmed(Box::new(leak.clone()));
            events.take(Change { what, ..created("new", 'c', Origin::Kernel) });
            let found = events.findings(&engine, &mut BTreeMap::new())["leaked_address"];
            assert_eq!((found.count, found.others, found.worst), (count, count, leak.severity));
        }
    }

    #[test]
    fn only_a_gap_of_the_recording_itself_counts() {
        let second = Duration::from_secs(1);
        let began = Timestamp::ZERO + 10 * second;
        for (what, lasted, gaps) in [
            (Loss::Channel, None, 1),
            (Loss::BulkRing, None, 0),
            (Loss::NetlinkSocket, Some(2 * second), 1),
            (Loss::NetlinkSocket, Some(4 * second), 0),
            (Loss::NoAgent, Some(2 * second), 0),
            (Loss::State, Some(Duration::ZERO), 0),
        ] {
            let mut events = Events { began, ..Events::default() };
            let change = created("new", 'c', Origin::Agent);
            let what = ChangeKind::Gap { what, count: 0, lasted };
            events.take(Change { at: began + 3 * second, what, ..change });
            assert_eq!(events.gaps, gaps, "{lasted:?}");
        }
    }

    fn balance(released: u64, released_without_netns: u64, unverified: u64, unreleased: u64) -> BalanceView {
        BalanceView {
            plugin: "cloud-cni".to_owned(),
            network: None,
            pods: 0,
            sandboxes: 0,
            added: 0,
            released,
            released_without_netns,
            unverified: Some(unverified),
            live: 3,
            ended: 4,
            unreleased,
            unknown: 5,
        }
    }

    #[test]
    fn an_attachment_that_is_over_was_released_or_not() {
        assert_eq!(
            released(&[balance(2, 2, 1, 1), balance(0, 0, 0, 1)], &[]),
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
        );
        assert!(released(&[], &[]).is_empty());
        // A recording may be wrong.
        let many = released(&[balance(u64::MAX, 0, u64::MAX, u64::MAX); 1], &[]);
        assert_eq!((many.len(), many.contains(&1.0)), (10_000, false));
        let half = released(&[balance(30_000, 0, 0, 30_000)], &[]);
        assert_eq!(half.iter().sum::<f64>(), 5000.0);
        assert_eq!(released(&[balance(4, 0, 1, 2)], &[balance(3, 0, 1, 1)]), [1.0, 0.0]);
        let uncounted = BalanceView { unverified: None, ..balance(4, 0, 0, 2) };
        assert!(released(&[balance(9, 0, 0, 0), uncounted], &[]).is_empty());
    }
}
