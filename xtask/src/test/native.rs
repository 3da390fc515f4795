//! The demo and the privileged tests on this machine's own kernel, except those that reboot it or need systemd as the init.

use super::report::Tier;
use super::step::Step;
use crate::{program, root};
use anyhow::Result;
use std::time::Duration;

/// Both programs, beside a VM on each other core.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Pods and the grace of a leak take half a minute.
const DEMO_LIMIT: Duration = Duration::from_secs(5 * 60);
const NEED_A_VM: [&str; 3] = ["reboot::", "recovery::", "unit::"];
/// The tests of each of [`program::TESTS`] that hold times against each other, which a VM beside them would change.
const TIMED: [&[&str]; program::TESTS.len()] = [&["serve::"], &["phase::", "pull::"]];
/// What a run this short can show of growth, others see on their way.
const LONG: &str = "flat::";

/// Whether what follows can become root.
pub(super) fn is_root(tier: &mut Tier) -> bool {
    tier.attempt("become root", root::authorize).is_some()
}

/// It fails unless its findings are one incident, told from the first cause on.
pub(super) fn demo(tier: &mut Tier) {
    match program::as_root("demo", &[]) {
        Ok(command) => tier.check("demo", command, DEMO_LIMIT),
        Err(error) => tier.fail("demo", &format!("{error:#}")),
    };
}

/// All tests, and they take hours.
pub(super) fn soak() -> Result<Step> {
    let programs = program::TESTS.map(|name| format!("{name}{}", skips(&NEED_A_VM)));
    step("this machine", &programs, &[(super::SOAK_VARIABLE, "1".to_owned())], super::SOAK_LIMIT)
}

/// The tests that need the machine for themselves, and those that do not.
pub(super) fn tests() -> Result<(Step, Step)> {
    let (timed, rest) = programs();
    Ok((step("this machine: alone", &timed, &[], LIMIT)?, step("this machine", &rest, &[], LIMIT)?))
}

fn programs() -> (Vec<String>, Vec<String>) {
    let all = program::TESTS.into_iter().zip(TIMED);
    all.map(|(program, timed)| {
        let not_here = skips(&NEED_A_VM) + &skips(&[LONG]) + &skips(timed);
        (format!("{program} {}", timed.join(" ")), format!("{program}{not_here}"))
    })
    .unzip()
}

/// What is run of each program.
#[cfg(test)]
pub(super) fn lines() -> Vec<String> {
    let (timed, rest) = programs();
    timed.into_iter().chain(rest).collect()
}

fn skips(modules: &[&str]) -> String {
    modules.iter().map(|name| format!(" --skip {name}")).collect()
}

/// The programs, one after the other: what a test makes in the kernel is seen by the hooks of every other.
fn step(name: &str, programs: &[String], variables: &[(&str, String)], limit: Duration) -> Result<Step> {
    let command = program::script_as_root(&program::script(programs), variables)?;
    Ok(Step { name: name.to_owned(), command, limit, runners: programs.len(), is_serial: true })
}
