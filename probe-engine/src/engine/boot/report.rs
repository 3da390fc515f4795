//! What a recovery means: its milestones, the columns and periods of the table, and whether it is over.
//!
//! A report depends only on a [`Recovery`] and a time: a later event may extend a recovery that seemed
//! complete.

use std::time::Duration;

use super::{
    WINDOW, network,
    numbers::{Number, Numbers},
    target::Target,
};
use crate::model::{
    recovery::{
        Kind, LessNetwork, NetworkAttempt, Ordered, Pod, Recovered, RecoveredPod, Recovery, Source,
        TimedSource, ns,
    },
    time::Timestamp,
};

/// An order that is further before the boot than this, or after it by more than the slack, is not used as the
/// zero: the node was off in between, or its clock was set.
const LONGEST_DOWN: Duration = Duration::from_secs(60 * 60);
/// An ADD that takes this long did not find what it needs, and waited for it.
pub(in crate::engine) const HUNG: Duration = Duration::from_secs(10);
/// The wall clock's error over a restart: the hardware clock counts seconds.
const SLACK_NS: i64 = 2_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    pub zero: Zero,
    pub first_static: Option<RecoveredPod>,
    /// The last system pod on the node's network that was back before the first successful ADD.
    pub network_pod: Option<RecoveredPod>,
    pub cni: Cni,
    pub first_service: Option<RecoveredPod>,
    pub last_service: Option<RecoveredPod>,
    pub close: Close,
    /// The rule by which pods are back.
    pub recovered: Recovered,
    /// Pods that count as back by their start, since none of their sockets listens.
    pub by_start: Vec<Pod>,
    pub numbers: Numbers,
    /// None: no target is set.
    pub target: Option<Target>,
    /// Pods that had more interfaces before.
    pub less_network: Vec<LessNetwork>,
    /// The agent started after the runtime (or the kubelet, if no runtime is known): earlier times come from
    /// files, if at all.
    pub is_late: bool,
    /// Some pods were not kept, so the last known pod may not be the last.
    pub is_truncated: bool,
}

/// A boot of a node, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct NodeBoot<'a> {
    pub node: &'a str,
    pub recovery: &'a Recovery,
    pub report: &'a RecoveryReport,
}

/// The zero of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The order, `before_ns` before the kernel's start.
    Order { ordered: Ordered, before_ns: i64 },
    /// The kernel's start, for this reason.
    Kernel(NoOrder),
}

impl Zero {
    pub(super) fn is_order(&self) -> bool {
        matches!(self, Self::Order { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoOrder {
    /// Nothing is known of an earlier boot.
    NoHistory,
    /// An earlier boot is known, but no order to end it: a power cut, or the agent did not run.
    /// `alive_wall_ns`: the last sign of life, ns since the epoch.
    NotSeen { alive_wall_ns: Option<i64> },
    /// The node ran on long after the order.
    Outlived(Ordered),
    /// By the wall clock the order is after the boot, or longer before it than a restart takes.
    NotComparable(Ordered),
}

/// The first successful ADD of the network, and the failures before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cni {
    pub first: Option<TimedSource>,
    /// Sandboxes whose ADD failed before it, or until now.
    pub failed: u32,
    /// Sandboxes whose ADD hung before it, and did not fail: it took [`HUNG`] or longer, or has been under
    /// way that long.
    pub hung: u32,
    /// The plugin of the first failed ADD.
    pub plugin: Option<String>,
    /// When the first ADD that failed or hung began.
    pub lost_since: Option<Timestamp>,
    /// From `lost_since` to the beginning of the first successful ADD, or to its end if that one hung, or to
    /// now.
    pub lost: Duration,
    /// When the agent started, if the kubelet was there before it: earlier failures are not counted here.
    pub unseen_until: Option<Timestamp>,
}

/// Whether the recovery is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// All service pods that were there before are back.
    All { pods: usize },
    /// No pod came for the quiet time. `missing`: the pods that were there before and are not back, if that
    /// is known.
    Quiet { quiet: Duration, missing: Option<Vec<Pod>> },
    /// More may come.
    Open { back: usize, missing: Option<Vec<Pod>> },
}

impl RecoveryReport {
    #[must_use]
    pub fn of(recovery: &Recovery, now: Timestamp) -> Self {
        let zero = zero(recovery);
        let back = recovery.back(now);
        let first_static = first(&back, Kind::Static);
        let services = Services::of(recovery, &back, now);
        let first_service = services.back.first().map(|back| (*back).clone());
        let last_service = services.back.last().map(|back| (*back).clone());
        let (before, is_zero_exact) = match &zero {
            Zero::Order { before_ns, ordered } => {
                // An order cannot have been given after the boot.
                let is_before = recovery.boot.as_ref().is_some_and(|it| ordered.wall_ns <= it.boot_wall_ns);
                (*before_ns, is_before && ordered.source.is_exact())
            }
            Zero::Kernel(_) => (0, true),
        };
        let marks = [
            recovery.kubelet,
            first_static.as_ref().map(|back| back.mark),
            first_service.as_ref().map(|back| back.mark),
            last_service.as_ref().map(|back| back.mark),
        ];
        let cni = cni(recovery, now);
        let numbers = Numbers::of(marks, before, is_zero_exact);
        let is_closed = services.close.is_closed();
        let so_far = match numbers.whole() {
            Some(Number { ns, .. }) => Some(ns),
            None if services.close.awaits_all() => Some(since_zero(now, before)),
            None => None,
        };
        // In a boot that the agent did not see, nothing distinguishes its pods from those that came later.
        let is_known = recovery.expected().is_some()
            || recovery.watched_since.is_none_or(|since| since <= Timestamp::ZERO + WINDOW);
        let target = if is_known {
            recovery.target.map(|span| Target::of(span, zero.is_order(), so_far, is_closed))
        } else {
            None
        };
        let started = recovery.runtime.or(recovery.kubelet).map(|mark| mark.at);
        Self {
            zero,
            first_static,
            network_pod: network_pod(&back, &cni),
            cni,
            first_service,
            last_service,
            close: services.close,
            recovered: recovery.recovered,
            by_start: by_start(recovery.recovered, &back),
            less_network: network::less(
                recovery.expected().unwrap_or_default(),
                recovery.pods.iter().map(|it| &it.pod),
            ),
            numbers,
            target,
            is_late: recovery.watched_since.is_some_and(|since| started.is_some_and(|at| at < since)),
            is_truncated: recovery.pods_left_out > 0
                || recovery.boot.as_ref().is_some_and(|boot| boot.before.pods_left_out > 0),
        }
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.close.is_closed()
    }

    /// Converts a time since boot to one since the zero of the columns, ns.
    #[must_use]
    pub fn since_zero(&self, at: Timestamp) -> i64 {
        let before_ns = match &self.zero {
            Zero::Order { before_ns, .. } => *before_ns,
            Zero::Kernel(_) => 0,
        };
        since_zero(at, before_ns)
    }
}

impl Close {
    fn is_closed(&self) -> bool {
        !matches!(self, Self::Open { .. })
    }

    /// Whether there are pods to wait for and none of them is back.
    fn awaits_all(&self) -> bool {
        matches!(self, Self::Open { back: 0, missing: Some(missing) } if !missing.is_empty())
    }
}

fn zero(recovery: &Recovery) -> Zero {
    let Some(boot) = &recovery.boot else { return Zero::Kernel(NoOrder::NoHistory) };
    let before = &boot.before;
    let Some(ordered) = &before.ordered else {
        let is_known = before.boot_id.is_some() || before.alive_wall_ns.is_some();
        let why = NoOrder::NotSeen { alive_wall_ns: before.alive_wall_ns };
        return Zero::Kernel(if is_known { why } else { NoOrder::NoHistory });
    };
    if before.has_outlived_order() {
        return Zero::Kernel(NoOrder::Outlived(ordered.clone()));
    }
    match boot.boot_wall_ns.saturating_sub(ordered.wall_ns) {
        near @ 0.. if near <= ns(LONGEST_DOWN) => Zero::Order { ordered: ordered.clone(), before_ns: near },
        early @ ..0 if early >= -SLACK_NS => Zero::Order { ordered: ordered.clone(), before_ns: 0 },
        _ => Zero::Kernel(NoOrder::NotComparable(ordered.clone())),
    }
}

fn since_zero(at: Timestamp, before_ns: i64) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(before_ns)
}

fn first(back: &[RecoveredPod], kind: Kind) -> Option<RecoveredPod> {
    back.iter().filter(|back| back.pod.kind == kind).min_by_key(|back| back.mark.at).cloned()
}

fn network_pod(back: &[RecoveredPod], cni: &Cni) -> Option<RecoveredPod> {
    let ready = cni.first?.at;
    let of_node = back.iter().filter(|it| it.pod.kind == Kind::System && it.pod.interfaces.is_empty());
    of_node.filter(|it| it.mark.at <= ready).max_by_key(|it| it.mark.at).cloned()
}

fn by_start(rule: Recovered, back: &[RecoveredPod]) -> Vec<Pod> {
    let back = back.iter().filter(|it| rule == Recovered::Listening && it.listened.is_none());
    back.map(|it| it.pod.clone()).collect()
}

/// The service pods that are part of the recovery, in the order in which they came back.
struct Services<'a> {
    back: Vec<&'a RecoveredPod>,
    close: Close,
}

impl<'a> Services<'a> {
    fn of(recovery: &Recovery, back: &'a [RecoveredPod], now: Timestamp) -> Self {
        let mut back: Vec<&RecoveredPod> =
            back.iter().filter(|back| back.pod.kind == Kind::Service).collect();
        back.sort_by_key(|back| back.mark.at);
        let expected = recovery
            .expected()
            .map(|pods| pods.iter().filter(|pod| pod.kind == Kind::Service).collect::<Vec<_>>());
        let Some(expected) = expected else { return Self::until_quiet(recovery.quiet, back, None, now) };
        if expected.is_empty() {
            return Self::until_quiet(recovery.quiet, back, Some(Vec::new()), now);
        }
        // Pods that are new since the restart were not waited for.
        back.retain(|back| expected.iter().any(|pod| pod.is(&back.pod)));
        let missing = expected.iter().filter(|pod| !back.iter().any(|back| back.pod.is(pod)));
        let missing: Vec<Pod> = missing.map(|pod| (*pod).clone()).collect();
        if missing.is_empty() {
            let close = Close::All { pods: expected.len() };
            return Self { back, close };
        }
        Self::until_quiet(recovery.quiet, back, Some(missing), now)
    }

    /// Keeps the pods up to the first quiet time and, if none was there before, up to [`WINDOW`] after the
    /// boot.
    fn until_quiet(
        quiet: Duration,
        mut back: Vec<&'a RecoveredPod>,
        missing: Option<Vec<Pod>>,
        now: Timestamp,
    ) -> Self {
        // None was there before (as after a drain), or it is not known: every pod is part of the recovery.
        let is_new = missing.as_ref().is_none_or(Vec::is_empty);
        back.retain(|back| !is_new || back.mark.at <= Timestamp::ZERO + WINDOW);
        let gap = back.windows(2).position(|two| match two {
            [one, next] => next.mark.at.since(one.mark.at) > quiet,
            _ => false,
        });
        // Pods that were there before are waited for over any gap.
        if is_new && let Some(gap) = gap {
            back.truncate(gap + 1);
        }
        let is_quiet = back.last().is_some_and(|last| now.since(last.mark.at) >= quiet);
        let close = if is_quiet {
            Close::Quiet { quiet, missing }
        } else {
            Close::Open { back: back.len(), missing }
        };
        Self { back, close }
    }
}

fn cni(recovery: &Recovery, now: Timestamp) -> Cni {
    let done = recovery.tries.iter().filter(|it| it.failed.is_none()).min_by_key(|it| it.ended);
    let began = recovery.tries.iter().map(|it| it.began).min();
    // No ADD is called before the kubelet or the runtime starts.
    let asked = recovery.kubelet.or(recovery.runtime).map(|mark| mark.at);
    let unseen_until = recovery.watched_since.filter(|since| asked.is_some_and(|at| at < *since));
    // An address is on record from before anything was seen: the first success was then or before.
    if let Some(at) = recovery.leased_since
        && began.is_none_or(|began| at + Source::FileTime.precision() < began)
    {
        let first = Some(TimedSource { at, source: Source::FileTime });
        return Cni { first, unseen_until, ..Cni::default() };
    }
    let until = match done {
        Some(it) if has_hung(it) => it.ended,
        Some(it) => it.began,
        None => now,
    };
    let done_at = done.map_or(now, |it| it.ended);
    let (failed, others): (Vec<_>, Vec<_>) =
        recovery.tries.iter().partition(|it| it.failed.is_some() && it.ended <= done_at);
    let first_failed = failed.iter().min_by_key(|it| it.began);
    let hung = others.iter().filter(|it| has_hung(it)).map(|it| it.began);
    let stuck = recovery.trying.iter().map(|it| it.began).filter(|began| now.since(*began) >= HUNG);
    let hung: Vec<Timestamp> = hung.chain(stuck).filter(|began| *began < until).collect();
    let lost_since = first_failed.map(|it| it.began).into_iter().chain(hung.iter().copied()).min();
    Cni {
        first: done.map(|it| TimedSource { at: it.ended, source: Source::Hook }),
        failed: u32::try_from(failed.len()).unwrap_or(u32::MAX),
        hung: u32::try_from(hung.len()).unwrap_or(u32::MAX),
        plugin: first_failed.and_then(|it| it.failed.clone()),
        lost_since,
        lost: lost_since.map(|began| until.since(began)).unwrap_or_default(),
        unseen_until,
    }
}

fn has_hung(attempt: &NetworkAttempt) -> bool {
    attempt.ended.since(attempt.began) >= HUNG
}
