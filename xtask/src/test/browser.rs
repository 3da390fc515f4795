//! Tests of the pages in a real browser; they do not need root.

use super::report::Tier;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier) {
    // One at a time, because response times are measured.
    let command = super::host_tests(&["--test", "browser", "--", "--test-threads=1"]);
    tier.tests("pages", command, LIMIT, 1);
}
