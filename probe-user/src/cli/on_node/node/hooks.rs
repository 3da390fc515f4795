//! The hooks, attached and tested: which ones fire, and which ones are attached but dead.

use std::{error::Error, path::Path, time::Duration};

use crate::{
    model::fact::Mechanism,
    source::{
        live::{
            attach::{HookReport, Probe},
            log::Logger,
            ring::{DrainError, RingReader, SLACK},
            selftest::{LIMIT, SelfTest},
        },
        netlink::Netlink,
        node::{cgroup::Hierarchy, missing_right::MissingRight},
    },
};

pub(in crate::cli) struct Hooks {
    pub(in crate::cli) drain: RingReader,
    /// How each signal is seen. The signal of a dead hook is not seen.
    pub(in crate::cli) reports: Vec<HookReport>,
    pub(in crate::cli) test: SelfTest,
    /// How long loading and attaching took.
    pub(in crate::cli) took: Duration,
    /// The log of the programs, if it was enabled.
    pub(in crate::cli) logger: Option<Logger>,
    /// The source for signals without a hook; `None` if it is not needed or not available.
    pub(in crate::cli) netlink: Option<Netlink>,
}

/// What the hooks that track a limited number of network namespaces miss without rtnetlink.
const LIMITED: &str = "the time is that of the kernel's clean-up, usually within a millisecond; of namespaces older than the \
                       hooks only those are seen in which a process has forked or ended since; the ends of more than 1,024 at \
                       a time are not told, only counted (sandprobe_netns_untracked_total)";

/// What is less precise with rtnetlink than with any hook.
const BY_NETLINK: &str = "only in namespaces that were found before, and at the time of the notification";

impl Hooks {
    /// Runs the self-test. Must be called within a tokio runtime.
    pub(in crate::cli) async fn prove(
        mut probe: Probe,
        host_root: &Path,
        hierarchy: &Hierarchy,
    ) -> Result<Self, DrainError> {
        let mut reports = probe.reports().to_vec();
        let took = probe.took();
        let logger = probe.take_logger();
        let mut drain = RingReader::new(probe, SLACK)?;
        let cgroups = host_root.join(hierarchy.mount.trim_start_matches('/'));
        let test = SelfTest::run(&mut drain, &cgroups, LIMIT).await;
        for report in &mut reports {
            let mut fact = report.fact();
            test.correct(&mut fact);
            report.mechanism = fact.mechanism;
            report.missed = fact.missed;
        }
        let netlink = open_netlink(&mut reports, host_root);
        Ok(Self { drain, reports, test, took, logger, netlink })
    }
}

/// Opens netlink if it can see what no hook does, and notes it in the reports.
fn open_netlink(reports: &mut [HookReport], host_root: &Path) -> Option<Netlink> {
    if !reports.iter().any(HookReport::needs_netlink) {
        return None;
    }
    let opened = Netlink::open(host_root.to_owned());
    let refused = opened.as_ref().err();
    let missed = refused.map(|error| (format!("{error}: {}", root_cause(error)), error.lack()));
    for report in reports.iter_mut().filter(|report| report.needs_netlink()) {
        note_netlink(report, missed.as_ref());
    }
    let by_netlink = reports.iter().filter(|report| report.mechanism == Some(Mechanism::Netlink));
    let signals = by_netlink.map(HookReport::fact).collect();
    opened.ok().map(|netlink| netlink.seeing(signals))
}

/// Notes in a signal's report that netlink is used, or why it is not.
fn note_netlink(report: &mut HookReport, missed: Option<&(String, Option<MissingRight>)>) {
    if let Some((why, lack)) = missed {
        if report.is_limited() {
            report.note = LIMITED;
        }
        report.missed.push((Mechanism::Netlink, why.clone()));
        if report.lacks.is_empty() {
            report.lacks.extend(*lack);
        }
    } else if !report.is_limited() {
        report.mechanism = Some(Mechanism::Netlink);
        report.note = BY_NETLINK;
    }
}

fn root_cause(error: &dyn Error) -> String {
    error.source().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BY_NETLINK, HookReport, LIMITED, MissingRight, note_netlink};
    use crate::{
        model::fact::{Mechanism, Signal},
        source::live::plan::Need,
    };

    fn report(signal: Signal, mechanism: Option<Mechanism>) -> HookReport {
        let (programs, missed, lacks) = (Vec::new(), Vec::new(), BTreeSet::new());
        HookReport {
            signal,
            need: Need::Nice,
            mechanism,
            programs,
            note: "",
            netlink: true,
            missed,
            lacks,
            may_improve: false,
        }
    }

    #[test]
    fn netlink_is_needed_for_what_no_hook_sees_or_has_room_for() {
        use Mechanism::{Fentry, Kprobe, RawTracepoint};
        use Signal::{AddressV4, NetnsDropped};
        for (signal, mechanism, needed) in [
            (NetnsDropped, Some(Fentry), false),
            (NetnsDropped, Some(Kprobe), false),
            (NetnsDropped, Some(RawTracepoint), true),
            (NetnsDropped, None, true),
            (AddressV4, Some(Fentry), false),
            (AddressV4, None, true),
        ] {
            assert_eq!(report(signal, mechanism).needs_netlink(), needed, "{signal:?} by {mechanism:?}");
        }
    }

    #[test]
    fn a_hook_with_too_little_room_stays_and_says_what_it_misses() {
        let mut limited = report(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
        note_netlink(&mut limited, None);
        assert_eq!((limited.mechanism, limited.note), (Some(Mechanism::RawTracepoint), ""));
        note_netlink(&mut limited, Some(&("refused".to_owned(), Some(MissingRight::Netlink))));
        assert_eq!((limited.mechanism, limited.note), (Some(Mechanism::RawTracepoint), LIMITED));
        assert_eq!(limited.missed, [(Mechanism::Netlink, "refused".to_owned())]);
        assert_eq!(limited.lacks, BTreeSet::from([MissingRight::Netlink]));
        let mut unseen = report(Signal::AddressV4, None);
        note_netlink(&mut unseen, None);
        assert_eq!((unseen.mechanism, unseen.note), (Some(Mechanism::Netlink), BY_NETLINK));
    }
}
