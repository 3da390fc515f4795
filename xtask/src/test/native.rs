//! The demo and the privileged tests on this machine's own kernel, except those that reboot it or need
//! systemd as the init.

use super::report::Tier;
use super::step::Step;
use crate::{program, root};
use anyhow::Result;
use std::time::Duration;

/// The limit of both programs, with a VM on each other core.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// The pods and the grace period of a leak take half a minute.
const DEMO_LIMIT: Duration = Duration::from_secs(5 * 60);
/// If it is set, the tests expect no release's costs of the agent.
const QUICK_VARIABLE: &str = "SANDPROBE_QUICK";
const NEED_A_VM: [&str; 3] = ["reboot::", "recovery::", "unit::"];
/// The tests of each of [`program::TESTS`] that compare times, which a VM at the same time would change.
const TIMED: [&[&str]; program::TESTS.len()] = [&["serve::"], &["phase::", "pull::"]];
/// Tests of growth. In a run this short they would show no more than other tests do.
const LONG: &str = "flat::";
/// Tests that wait for minutes until a limit of the agent is over: only with `--full`.
const WAITING: [&str; 5] = [
    "belief::hang::",
    "restart::restarts_of",
    "verdict::abandoned::",
    "verdict::failing::a_runtime",
    "verdict::unready::",
];

/// Reports whether the next steps can become root.
pub(super) fn is_root(tier: &mut Tier) -> bool {
    tier.attempt("become root", root::authorize).is_some()
}

/// Runs the demo, which fails unless its findings are one incident that begins with the first cause.
pub(super) fn demo(tier: &mut Tier) {
    match program::as_root("demo", &[]) {
        Ok(command) => tier.check("demo", command, DEMO_LIMIT),
        Err(error) => tier.fail("demo", &format!("{error:#}")),
    };
}

/// Returns the step that runs all tests, which takes hours.
pub(super) fn soak() -> Result<Step> {
    let programs = program::TESTS.map(|name| format!("{name}{}", skips(&NEED_A_VM)));
    step("this machine", &programs, &[(super::SOAK_VARIABLE, "1".to_owned())], super::SOAK_LIMIT)
}

/// Returns the tests that must run alone on the machine, and the others, with those that wait if it is to be
/// a full run.
pub(super) fn tests(is_full: bool) -> Result<(Step, Step)> {
    let (timed, rest) = programs(if is_full { &[] } else { &WAITING });
    let quick = [(QUICK_VARIABLE, "1".to_owned())];
    let variables = if is_full { &[] } else { &quick[..] };
    Ok((
        step("this machine: alone", &timed, variables, LIMIT)?,
        step("this machine", &rest, variables, LIMIT)?,
    ))
}

fn programs(left_out: &[&str]) -> (Vec<String>, Vec<String>) {
    let all = program::TESTS.into_iter().zip(TIMED);
    all.map(|(program, timed)| {
        let not_here = skips(&NEED_A_VM) + &skips(&[LONG]) + &skips(timed) + &skips(left_out);
        (format!("{program} {}", timed.join(" ")), format!("{program}{not_here}"))
    })
    .unzip()
}

/// Returns each program with the words that choose its tests.
#[cfg(test)]
pub(super) fn lines() -> Vec<String> {
    let (timed, rest) = programs(&WAITING);
    timed.into_iter().chain(rest).collect()
}

fn skips(modules: &[&str]) -> String {
    modules.iter().map(|name| format!(" --skip {name}")).collect()
}

/// Runs the programs one after the other: the hooks of each test see what every other test does in the
/// kernel.
fn step(name: &str, programs: &[String], variables: &[(&str, String)], limit: Duration) -> Result<Step> {
    let command = program::script_as_root(&program::script(programs), variables)?;
    Ok(Step { name: name.to_owned(), command, limit, runners: programs.len(), is_serial: true })
}
