//! Tests of the pages in a real browser; they do not need root.

use super::report::Tier;
use crate::workspace;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);
/// One at a time, because response times are measured.
const LINE: &str = "test --package tests --features browser --test browser -- --test-threads=1";

pub(super) fn tier(tier: &mut Tier) {
    let mut command = workspace::cargo();
    command.args(LINE.split(' '));
    tier.tests("pages", command, LIMIT, 1);
}
