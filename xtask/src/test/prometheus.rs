//! Tests of the files for Prometheus and Grafana; they do not need root.

use super::report::Tier;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier) {
    super::plain_tests(tier, "metrics and alerts", &["--test", "prometheus"], &[], LIMIT);
}
