//! Tests of the pages in a real browser; they do not need root.

use super::report::Tier;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(super) fn tier(tier: &mut Tier) {
    // One at a time, because response times are measured.
    super::plain_tests(tier, "pages", &["--test", "browser", "--", "--test-threads=1"], &[], LIMIT);
}
