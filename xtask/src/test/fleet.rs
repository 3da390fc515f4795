//! Tests of the questions over many nodes, on the engines that people use; they do not need root.

use super::report::Tier;
use crate::tool;
use std::ffi::OsStr;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier, soak: bool) {
    let Some(engines) = tier.attempt("engines", || tool::ENGINES.ensure()) else { return };
    let mut arguments = vec!["--test", "fleet"];
    let mut variables = vec![("SANDPROBE_ENGINES", engines.as_os_str())];
    let mut limit = LIMIT;
    if soak {
        // The test prints how long each question takes.
        arguments.extend(["--", "--nocapture"]);
        variables.push((super::SOAK_VARIABLE, OsStr::new("1")));
        limit = super::SOAK_LIMIT;
    }
    super::plain_tests(tier, "questions over many nodes", &arguments, &variables, limit);
}
