//! What a recording has to compare: how its pods started, what was ordered for each of them, and what was
//! found.

use std::{collections::BTreeMap, path::Path};

use crate::{
    cli::replay::{replayed_with, unreadable},
    engine::{share, view::BalanceView},
    model::{
        change::{Change, ChangeKind, CniCall, Finding},
        fact::{Origin, PodName},
        finding::{Key, Severity},
        id::{ContainerId, PodUid},
        phase::{Kind, Start},
    },
    recording::Header,
    replay::Replayed,
};

/// At most this many attachments count; of more, as many in proportion.
const MAX_ATTACHMENTS: u64 = 10_000;

/// What a recording has to compare.
pub(super) struct Recorded {
    pub(super) header: Header,
    /// Seconds of each phase, of the whole start (`None`) and until the containers listen.
    pub(super) starts: Vec<(Option<Kind>, Vec<f64>)>,
    /// The pods whose first sandbox was seen to be made.
    pub(super) pods: Vec<Pod>,
    pub(super) findings: BTreeMap<&'static str, Found>,
    /// For each attachment that is over, 1 if its addresses were released, else 0.
    pub(super) released: Vec<f64>,
    /// Where it was cut off, if it was.
    pub(super) cut_off: Option<String>,
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
    pub(super) sandboxes: u32,
    pub(super) adds: u32,
    pub(super) failed_adds: u32,
    pub(super) failed_dels: u32,
}

/// The confirmed findings of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) count: usize,
    pub(super) worst: Severity,
    /// All of them are about pods of this recording.
    pub(super) is_of_pods: bool,
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
    /// The latest report about each sandbox: a start that goes on is reported again.
    starts: BTreeMap<ContainerId, Start>,
    sandboxes: BTreeMap<ContainerId, SandboxSeen>,
    findings: BTreeMap<Key, (&'static str, Severity, Option<PodId>)>,
}

#[derive(Default)]
struct SandboxSeen {
    /// The latest name, which may have become known late.
    pod: Option<PodId>,
    orders: Orders,
}

impl Recorded {
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let mut events = Events::default();
        let Replayed { header, engine, cut_off, .. } = replayed_with(file, |change| events.take(change))?;
        let starts = share::durations(events.starts.values()).into_iter();
        let starts = starts.map(|(kind, spans)| (kind, spans.iter().map(|it| it.as_secs_f64()).collect()));
        let starts = starts.collect();
        let mut pods: BTreeMap<PodId, Pod> = BTreeMap::new();
        for SandboxSeen { pod, orders } in events.sandboxes.into_values() {
            if let Some(id) = pod {
                pods.entry(id).or_default().orders.add(orders);
            }
        }
        // A pod without a sandbox began before the recording.
        pods.retain(|_, pod| pod.orders.sandboxes > 0);
        let mut findings: BTreeMap<&'static str, Found> = BTreeMap::new();
        for (kind, severity, pod) in events.findings.into_values() {
            let row = findings.entry(kind).or_insert(Found { count: 0, worst: severity, is_of_pods: true });
            row.count += 1;
            row.worst = row.worst.max(severity);
            match pod.and_then(|id| pods.get_mut(&id)) {
                Some(pod) => *pod.findings.entry(kind).or_default() += 1,
                None => row.is_of_pods = false,
            }
        }
        Ok(Self {
            header,
            starts,
            pods: pods.into_values().collect(),
            findings,
            released: released(&engine.balance()),
            cut_off: cut_off.map(|error| unreadable(file, &error).to_string()),
        })
    }

    /// Returns the seconds of a phase, for each start that had it.
    pub(super) fn seconds(&self, kind: Option<&Kind>) -> &[f64] {
        let found = self.starts.iter().find(|(it, _)| it.as_ref() == kind);
        found.map_or(&[], |(_, seconds)| seconds)
    }
}

impl Events {
    fn take(&mut self, change: Change) {
        let Change { origin, context, what, .. } = change;
        if let ChangeKind::PodStarted(start) = what {
            self.starts.insert(start.sandbox.clone(), *start);
            return;
        }
        if let ChangeKind::FindingConfirmed(it) = what {
            let Finding { key, kind, severity, pod, .. } = *it;
            self.findings.insert(key, (kind.into_str(), severity, pod.as_ref().and_then(PodId::of)));
            return;
        }
        let Some(id) = context.sandbox else { return };
        let row = self.sandboxes.entry(id).or_default();
        let pod = context.pod.map(|it| PodName { namespace: it.namespace, name: it.name, uid: it.uid });
        row.pod = pod.as_ref().and_then(PodId::of).or(row.pod.take());
        match what {
            ChangeKind::SandboxCreated if origin != Origin::Listed => row.orders.sandboxes = 1,
            ChangeKind::CniFinished { call, end: Some(end), .. } => row.orders.count(&call, end.code == 0),
            _ => {}
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

/// Returns 1 for each attachment that was released, and 0 for each that is over and was not, as far as
/// anything shows it.
fn released(balance: &[BalanceView]) -> Vec<f64> {
    let mut released: u64 = 0;
    let mut over: u64 = 0;
    for it in balance {
        let by_del = it.released.saturating_add(it.released_without_netns);
        released = released.saturating_add(by_del.saturating_sub(it.unverified));
        over = over.saturating_add(by_del).saturating_add(it.unreleased);
    }
    let kept = over.min(MAX_ATTACHMENTS);
    let share = u128::from(released.min(over)) * u128::from(kept) / u128::from(over.max(1));
    (0..u128::from(kept)).map(|place| if place < share { 1.0 } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::{BalanceView, released};

    fn balance(released: u64, released_without_netns: u64, unverified: u64, unreleased: u64) -> BalanceView {
        BalanceView {
            plugin: "cloud-cni".to_owned(),
            network: None,
            pods: 0,
            sandboxes: 0,
            added: 0,
            released,
            released_without_netns,
            unverified,
            live: 3,
            ended: 4,
            unreleased,
            unknown: 5,
        }
    }

    #[test]
    fn an_attachment_that_is_over_was_released_or_not() {
        assert_eq!(released(&[balance(2, 2, 1, 1), balance(0, 0, 0, 1)]), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        assert!(released(&[]).is_empty());
        // A recording may be wrong.
        let many = released(&[balance(u64::MAX, 0, u64::MAX, u64::MAX); 1]);
        assert_eq!((many.len(), many.contains(&1.0)), (10_000, false));
        let half = released(&[balance(30_000, 0, 0, 30_000)]);
        assert_eq!(half.iter().sum::<f64>(), 5000.0);
    }
}
