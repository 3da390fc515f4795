//! The demo and the privileged tests on this machine's own kernel, except those that reboot it or need systemd as the init.

use super::report::Tier;
use crate::{program, root};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Pods and the grace of a leak take half a minute.
const DEMO_LIMIT: Duration = Duration::from_secs(5 * 60);

pub(super) fn tier(tier: &mut Tier, soak: bool) {
    if tier.attempt("become root", root::authorize).is_none() {
        return;
    }
    let limit = if soak { super::SOAK_LIMIT } else { LIMIT };
    let variables = if soak { vec![(super::SOAK_VARIABLE, "1".to_owned())] } else { Vec::new() };
    // It fails unless its findings are one incident, told from the first cause on.
    if !soak {
        match program::as_root("demo", &[]) {
            Ok(command) => tier.check("demo", command, DEMO_LIMIT),
            Err(error) => tier.fail("demo", &format!("{error:#}")),
        };
    }
    for name in program::TESTS {
        match program::as_root(name, &variables) {
            // One at a time: what a test makes in the kernel is seen by the hooks of every other.
            Ok(mut command) => {
                command.arg("--test-threads=1");
                // What a run this short can show of growth, others see on their way.
                let long = (!soak).then_some("flat::");
                for skipped in ["reboot::", "recovery::", "unit::"].into_iter().chain(long) {
                    command.args(["--skip", skipped]);
                }
                tier.tests(name, command, limit, 1)
            }
            Err(error) => tier.fail(name, &format!("{error:#}")),
        };
    }
}
