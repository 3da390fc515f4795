//! Tests of the files for Prometheus and Grafana; they do not need root.

use super::report::Tier;
use crate::workspace;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);
const LINE: &str = "test --package tests --features prometheus --test prometheus";

pub(super) fn tier(tier: &mut Tier) {
    let mut command = workspace::cargo();
    command.args(LINE.split(' '));
    tier.tests("metrics and alerts", command, LIMIT, 1);
}
