//! The hooks, attached and proven: what fires, and what only looks as if it did.

use std::{error::Error, path::Path, time::Duration};

use crate::{
    engine::fact::Mechanism,
    source::{
        cgroup::Hierarchy,
        live::{
            attach::{HookReport, Probe},
            log::Logger,
            ring::{Drain, DrainError, SLACK},
            selftest::{LIMIT, SelfTest},
        },
        netlink::Netlink,
    },
};

pub(in crate::cli) struct Hooks {
    pub(in crate::cli) drain: Drain,
    /// How each signal is seen; one whose hook is dead is not.
    pub(in crate::cli) reports: Vec<HookReport>,
    pub(in crate::cli) test: SelfTest,
    /// From nothing to attached.
    pub(in crate::cli) took: Duration,
    /// What the programs say of themselves, if that was asked for.
    pub(in crate::cli) logger: Option<Logger>,
    /// For what no hook sees; `None` if it is not needed, or not to be had.
    pub(in crate::cli) netlink: Option<Netlink>,
}

/// What is less precise with rtnetlink than with any hook.
const BY_NETLINK: &str = "only in namespaces that were found before, and at the time of the notification";

impl Hooks {
    /// Makes happen what the hooks are for. Must be called within a runtime.
    pub(in crate::cli) async fn prove(
        mut probe: Probe,
        host_root: &Path,
        hierarchy: &Hierarchy,
    ) -> Result<Self, DrainError> {
        let mut reports = probe.reports().to_vec();
        let took = probe.took();
        let logger = probe.take_logger();
        let mut drain = Drain::new(probe, SLACK)?;
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

/// Opens it if it can see what no hook does, and says so.
fn open_netlink(reports: &mut [HookReport], host_root: &Path) -> Option<Netlink> {
    let mut blind: Vec<&mut HookReport> =
        reports.iter_mut().filter(|report| report.mechanism.is_none() && report.netlink).collect();
    if blind.is_empty() {
        return None;
    }
    let opened = Netlink::open(host_root.to_owned());
    for report in &mut blind {
        match &opened {
            Ok(_) => {
                report.mechanism = Some(Mechanism::Netlink);
                report.note = BY_NETLINK;
            }
            Err(error) => {
                report.missed.push((Mechanism::Netlink, format!("{error}: {}", root_cause(error))));
                if report.lacks.is_empty() {
                    report.lacks.extend(error.lack());
                }
            }
        }
    }
    opened.ok()
}

fn root_cause(error: &dyn Error) -> String {
    error.source().map_or_else(String::new, ToString::to_string)
}
