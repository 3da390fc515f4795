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

/// The test programs, one after the other: what a test makes in the kernel is seen by the hooks of every other.
pub(super) fn tests(soak: bool) -> Result<Step> {
    let variables = if soak { vec![(super::SOAK_VARIABLE, "1".to_owned())] } else { Vec::new() };
    let skipped = NEED_A_VM.into_iter().chain((!soak).then_some(LONG));
    let skips: String = skipped.map(|name| format!(" --skip {name}")).collect();
    let programs = program::TESTS.map(|name| format!("{name}{skips}"));
    let command = program::script_as_root(&program::script(&programs), &variables)?;
    let limit = if soak { super::SOAK_LIMIT } else { LIMIT };
    Ok(Step { name: "this machine".to_owned(), command, limit, runners: program::TESTS.len() })
}
