//! Tests of the questions over many nodes, on the engines that people use; they do not need root.

use super::report::Tier;
use crate::tool;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier, soak: bool) {
    let Some(engines) = tier.attempt("engines", || tool::ENGINES.ensure()) else { return };
    let mut command = super::host_tests(&["--test", "fleet"]);
    command.env("SANDPROBE_ENGINES", engines);
    if soak {
        // The test prints how long each question takes.
        command.args(["--", "--nocapture"]).env(super::SOAK_VARIABLE, "1");
    }
    tier.tests("questions over many nodes", command, if soak { super::SOAK_LIMIT } else { LIMIT }, 1);
}
