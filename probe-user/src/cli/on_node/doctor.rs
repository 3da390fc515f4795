//! `sandprobe doctor`: what can be seen on this node, how, and what to change to see more.

mod addresses;
mod agent;
mod cost;
mod netns;
mod node;
mod object;
mod report;
mod signal;

use std::{collections::BTreeSet, path::Path};

use anyhow::Context as _;
use clap::Args;
use tokio::runtime;
use tracing::warn;

use super::{
    node::{args::HostArgs, hooks::Hooks, place::Place},
    pins::PinDirArgs,
};
use crate::{
    cli::{ExitStatus, args::Form, client::AgentArgs, output},
    confine,
    sink::render::doctor::{Check, Grade, Report},
    source::{
        host::HostRoot,
        live::{
            attach::{self, Options, Probe},
            pin::{PinError, Pins},
        },
        node::missing_right::{MissingRight, Privileges},
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Doctor {
    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    pins: PinDirArgs,

    #[command(flatten)]
    agent: AgentArgs,
}

impl Doctor {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let mut report = examine(&self.host.host_root, self.pins.of_doctor().as_deref());
        report.checks.extend(agent::checks(&self.agent));
        let mut text = match self.output {
            Form::Text => report::text(&report),
            Form::Json => report::json(&report)?,
        };
        output::write(&mut text)?;
        match report.grade() {
            Grade::Full => Ok(ExitStatus::Ok),
            Grade::Degraded => Ok(ExitStatus::Incomplete),
            Grade::Cannot => Ok(ExitStatus::CannotRun),
        }
    }
}

/// Attaches the hooks for a moment, pinned in this folder: only that shows what this kernel allows.
fn examine(host_root: &Path, pin_dir: Option<&Path>) -> Report {
    let here = Privileges::find();
    let mut checks = machine(here);
    checks.push(node::confinement(confine::survey()));
    checks.push(object::object(&attach::object()));
    let mut signals = Vec::new();
    let mut lacks = node::lacks(here);
    match HostRoot::open(host_root) {
        Err(error) => checks.push(Check::cannot("host root", error.to_string())),
        Ok(root) => match Place::find(root) {
            Err(error) => checks.push(Check::cannot("cgroup", format!("{error:#}"))),
            Ok(place) => {
                checks.push(node::cgroup(&place.layout, &place.hierarchy));
                checks.push(addresses::check(&place));
                let before = cost::of_a_system_call();
                match hooks(&place, host_root, pin_dir) {
                    Err(error) => checks.push(Check::cannot("hooks", format!("{error:#}"))),
                    Ok((restart, hooks)) => {
                        checks.extend([signal::check(&hooks), restart]);
                        checks.extend(cost::check(&hooks.reports, before));
                        signals = hooks.reports.iter().map(|report| signal::row(report, here)).collect();
                        lacks.extend(hooks.reports.iter().flat_map(|report| &report.lacks));
                    }
                }
            }
        },
    }
    checks.push(node::tracefs(&lacks));
    Report { checks, signals, cure: here.cure(&lacks) }
}

/// The checks without hooks.
fn machine(here: Privileges) -> Vec<Check> {
    vec![node::privilege(here), node::btf(), node::lockdown(), node::ftrace(), node::pid_namespace()]
}

/// Returns the report for hooks that stay attached. Must be called before rights are given up.
pub(super) fn of_run(hooks: &Hooks, place: &Place, unpinned: Option<&PinError>) -> Report {
    let here = Privileges::find();
    let mut checks = machine(here);
    checks.push(node::cgroup(&place.layout, &place.hierarchy));
    checks.push(signal::check(hooks));
    checks.push(node::restart(unpinned, hooks.drain.probe().pinning()));
    checks.push(node::tracefs(&lacks(hooks, here)));
    let signals = hooks.reports.iter().map(|report| signal::row(report, here)).collect();
    Report { checks, signals, cure: cure(hooks, here) }
}

/// Returns how to see everything that can be seen; `None` if that is the case already, or if nobody can
/// change it.
pub(super) fn cure(hooks: &Hooks, here: Privileges) -> Option<String> {
    here.cure(&lacks(hooks, here))
}

/// Returns what the agent and its hooks need and do not have.
fn lacks(hooks: &Hooks, here: Privileges) -> BTreeSet<MissingRight> {
    let mut lacks = node::lacks(here);
    lacks.extend(hooks.reports.iter().flat_map(|report| &report.lacks));
    lacks
}

/// Returns the check of the rights that a run has given up.
pub(super) fn of_confined(confined: &confine::Confined) -> Check {
    node::confinement(Ok(confined.clone()))
}

/// Attaches the hooks, and checks whether they could outlive an agent.
fn hooks(place: &Place, host_root: &Path, pin_dir: Option<&Path>) -> anyhow::Result<(Check, Hooks)> {
    let (pins, unpinned) = match pin_dir.map(Pins::open) {
        None => (None, None),
        Some(Ok(pins)) => {
            // An interrupted doctor has left its hooks, from which this one learns nothing.
            pins.clear()?;
            (Some(pins), None)
        }
        Some(Err(error)) => (None, Some(error)),
    };
    let options = Options { pins: pins.as_ref(), ..Options::new(&place.root, &place.hierarchy) };
    let probe = Probe::survey(&options);
    let restart = probe.as_ref().ok().map(|probe| node::restart(unpinned.as_ref(), probe.pinning()));
    // The hooks themselves stay as long as they are tested.
    if let Some(pins) = pins
        && let Err(error) = pins.remove()
    {
        warn!(%error, "the pins of this test stay; sandprobe detach removes them");
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let hooks = runtime.block_on(Hooks::prove(probe?, host_root, &place.hierarchy))?;
    Ok((restart.context("no hooks")?, hooks))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::Doctor;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        doctor: Doctor,
    }

    #[test]
    fn hooks_are_pinned_beside_those_of_the_agent() {
        let dir = |dir: &str| Typed::parse_from(["doctor", "--pin-dir", dir]).doctor.pins.of_doctor();
        assert_eq!(dir("/run/bpf/agent").as_deref(), Some(Path::new("/run/bpf/agent-doctor")));
        assert_eq!(dir("none"), None);
    }
}
