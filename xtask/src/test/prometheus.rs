//! Tests of the files for Prometheus and Grafana; they do not need root.

use super::report::Tier;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier) {
    let command = super::host_tests(&["--test", "prometheus"]);
    tier.tests("metrics and alerts", command, LIMIT, 1);
}
