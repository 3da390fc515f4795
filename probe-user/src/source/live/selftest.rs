//! Proves that the hooks fire: makes a network namespace and a cgroup, removes them, and waits for the
//! events.
//!
//! A hook can be attached and dead: with `kernel.ftrace_enabled=0` the kernel accepts fentry programs and
//! kprobes and never runs them.

mod make;

use std::{collections::BTreeSet, fs, io, path::Path, time::Duration};

use probe_common::event::kind;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::ring::{RingReader, selftest_filter::SelfTestFilter};
use crate::{
    engine::decode::decode,
    model::fact::{Attached, Mechanism, Signal},
    source::node::clock,
};

/// How long to wait on real hardware. Emulated machines need more.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// How often the rings are read.
const BETWEEN_POLLS: Duration = Duration::from_millis(2);

/// The outcome for each signal that a program reports.
#[derive(Debug, Default)]
pub struct SelfTest {
    pub outcomes: Vec<(Signal, Outcome)>,
    pub took: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fired,
    /// It is attached, and it reported nothing although the tested operation happened.
    Silent,
    /// The tested operation could not be made to happen.
    Untested(String),
}

/// The signals that the self-test causes. A cgroup's release is not among them, because the kernel may delay
/// it.
const NETNS: [Signal; 3] = [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed];
const CGROUP: [Signal; 2] = [Signal::CgroupCreated, Signal::CgroupRemoved];

/// The signals whose operation failed, and why.
type Failure = (&'static [Signal], String);

const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";

impl SelfTest {
    /// Tests the attached hooks, with the cgroup hierarchy that is mounted at `cgroups`. Other events that
    /// come meanwhile stay in `drain` and are reported later. The test's own events are not reported.
    pub async fn run(drain: &mut RingReader, cgroups: &Path, limit: Duration) -> Self {
        let start = Instant::now();
        let deadline = start + limit;
        let attached: BTreeSet<Signal> = drain
            .probe()
            .reports()
            .iter()
            .filter(|report| report.mechanism.is_some())
            .map(|report| report.signal)
            .collect();
        let mut own = SelfTestFilter::default();
        let mut failures: Vec<Failure> = Vec::new();
        let since = clock::now();
        let before = drain.probe().lost();
        match timeout_at(deadline, make::netns()).await.map_err(io::Error::other).flatten() {
            Ok(inode) => own.add_netns(inode, since),
            Err(error) => failures.push((&NETNS[..], format!("cannot make a network namespace: {error}"))),
        }
        match make::cgroup(cgroups) {
            Ok(id) => own.add_cgroup(id),
            Err(error) => {
                let why = format!("cannot make a cgroup in {}: {error}", cgroups.display());
                failures.push((&CGROUP[..], why));
            }
        }
        let signals: Vec<Signal> =
            [&NETNS[..], &CGROUP].concat().into_iter().filter(|signal| attached.contains(signal)).collect();
        let mut awaited: BTreeSet<Signal> =
            signals.iter().copied().filter(|signal| untested(*signal, &failures).is_none()).collect();
        listen(drain, &mut own, &mut awaited, before.as_deref(), deadline).await;
        drain.leave_out(own);
        let outcomes = signals.into_iter().map(|signal| (signal, judge(signal, &failures, &awaited)));
        Self { outcomes: outcomes.collect(), took: start.elapsed() }
    }

    /// Returns the signals whose hooks are attached and dead.
    pub fn silent(&self) -> impl Iterator<Item = Signal> {
        self.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Silent).map(|(signal, _)| *signal)
    }

    /// Marks the signals of dead hooks as not seen, with the reason.
    pub(crate) fn correct(&self, attached: &mut Attached) {
        if let Some(mechanism) = attached.mechanism
            && self.silent().any(|signal| signal == attached.signal)
        {
            attached.mechanism = None;
            attached.missed.push((mechanism, why_silent(mechanism, &ftrace_enabled())));
        }
    }
}

fn untested(signal: Signal, failures: &[Failure]) -> Option<&str> {
    failures.iter().find(|(signals, _)| signals.contains(&signal)).map(|(_, why)| why.as_str())
}

/// Returns the outcome for a signal; `awaited` has the signals that were not reported.
fn judge(signal: Signal, failures: &[Failure], awaited: &BTreeSet<Signal>) -> Outcome {
    match untested(signal, failures) {
        Some(why) => Outcome::Untested(why.to_owned()),
        None if !awaited.contains(&signal) => Outcome::Fired,
        // The drop was reported, so this event is still to come: after all other namespaces that the kernel
        // tears down first.
        None if signal == Signal::NetnsFreed && !awaited.contains(&Signal::NetnsDropped) => {
            Outcome::Untested("the kernel was too busy to take a network namespace apart".to_owned())
        }
        None => Outcome::Silent,
    }
}

/// Returns the kind of record that shows a signal.
fn kind_of(signal: Signal) -> Option<u16> {
    Some(match signal {
        Signal::NetnsCreated => kind::NETNS_CREATED,
        Signal::NetnsDropped => kind::NETNS_DROPPED,
        Signal::NetnsFreed => kind::NETNS_FREED,
        Signal::CgroupCreated => kind::CGROUP_CREATED,
        Signal::CgroupRemoved => kind::CGROUP_REMOVED,
        _ => return None,
    })
}

/// Returns whether a record of this signal was made and found no room, since `before` was counted: records
/// that the last agent left may fill the ring until they are saved.
fn found_no_room(signal: Signal, before: &[u64], now: &[u64]) -> bool {
    let Some(kind) = kind_of(signal).map(usize::from) else { return false };
    now.get(kind) > before.get(kind)
}

/// Removes from `awaited` the signals that are reported, until none is left or the deadline has passed.
/// `before`: how many records had found no room before the test.
async fn listen(
    drain: &mut RingReader,
    own: &mut SelfTestFilter,
    awaited: &mut BTreeSet<Signal>,
    before: Option<&[u64]>,
    deadline: Instant,
) {
    loop {
        let (mut records, emptied) = drain.take_once();
        records.retain(|record| match decode(&record.bytes).ok().and_then(|seen| own.signal(&seen)) {
            Some(signal) => {
                awaited.remove(&signal);
                false
            }
            None => true,
        });
        drain.keep(records);
        if emptied.both()
            && !awaited.is_empty()
            && let Some((before, now)) = before.zip(drain.probe().lost())
        {
            awaited.retain(|signal| !found_no_room(*signal, before, &now));
        }
        if awaited.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            return;
        }
        // The kernel does not wake the reader for a record after others whose room is held.
        if emptied.both()
            && let Ok(Err(error)) = timeout(BETWEEN_POLLS, drain.wait()).await
        {
            return debug!(%error, "self-test cannot wait for records");
        }
    }
}

fn why_silent(mechanism: Mechanism, ftrace_enabled: &str) -> String {
    let by_ftrace = match mechanism {
        Mechanism::Fentry | Mechanism::Fexit | Mechanism::Kprobe | Mechanism::Kretprobe => true,
        Mechanism::RawTracepoint | Mechanism::Tracepoint | Mechanism::Netlink => false,
    };
    if by_ftrace && ftrace_enabled.trim() == "0" {
        "attached, but does not fire: kernel.ftrace_enabled is 0; set it to 1 and start again".to_owned()
    } else {
        "attached, but does not fire".to_owned()
    }
}

/// Reads the setting; empty if the kernel has no ftrace.
fn ftrace_enabled() -> String {
    fs::read_to_string(FTRACE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use probe_common::event::{KINDS, kind};

    use super::{Attached, CGROUP, Mechanism, Outcome, SelfTest, Signal, found_no_room, judge, why_silent};

    fn attached(signal: Signal) -> Attached {
        Attached {
            signal,
            mechanism: Some(Mechanism::RawTracepoint),
            note: String::new(),
            missed: Vec::new(),
        }
    }

    #[test]
    fn a_dead_hook_counts_as_none() {
        let outcomes = vec![
            (Signal::NetnsCreated, Outcome::Silent),
            (Signal::NetnsDropped, Outcome::Fired),
            (Signal::CgroupCreated, Outcome::Untested("read-only".to_owned())),
        ];
        let test = SelfTest { outcomes, ..SelfTest::default() };
        let mut dead = attached(Signal::NetnsCreated);
        test.correct(&mut dead);
        assert_eq!((dead.mechanism, dead.missed.len()), (None, 1));
        for signal in [Signal::NetnsDropped, Signal::CgroupCreated, Signal::Exec] {
            let mut alive = attached(signal);
            test.correct(&mut alive);
            assert_eq!(alive, attached(signal));
        }
    }

    #[test]
    fn only_what_had_to_be_told_at_once_is_silent() {
        let failures = [(&CGROUP[..], "read-only".to_owned())];
        let verdicts = |awaited: &[Signal]| {
            let awaited: BTreeSet<Signal> = awaited.iter().copied().collect();
            [Signal::NetnsDropped, Signal::NetnsFreed, Signal::CgroupCreated]
                .map(|signal| judge(signal, &failures, &awaited))
        };
        let [dropped, freed, cgroup] = verdicts(&[Signal::NetnsFreed]);
        assert_eq!((dropped, cgroup), (Outcome::Fired, Outcome::Untested("read-only".to_owned())));
        assert!(matches!(freed, Outcome::Untested(_)), "the kernel may be busy");
        let [dropped, freed, _] = verdicts(&[Signal::NetnsDropped, Signal::NetnsFreed]);
        assert_eq!((dropped, freed), (Outcome::Silent, Outcome::Silent));
    }

    #[test]
    fn a_record_without_room_shows_that_its_hook_fired() {
        let before = vec![1; KINDS];
        let mut now = before.clone();
        now[usize::from(kind::NETNS_DROPPED)] += 1;
        let fired = |signal| found_no_room(signal, &before, &now);
        assert!(fired(Signal::NetnsDropped));
        assert!(!fired(Signal::NetnsCreated) && !fired(Signal::Exec));
    }

    #[test]
    fn ftrace_is_to_blame_only_for_what_needs_it() {
        assert!(why_silent(Mechanism::Fentry, "0\n").contains("kernel.ftrace_enabled"));
        assert!(!why_silent(Mechanism::Fentry, "1\n").contains("kernel.ftrace_enabled"));
        assert!(!why_silent(Mechanism::RawTracepoint, "0\n").contains("kernel.ftrace_enabled"));
    }
}
