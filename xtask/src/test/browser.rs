//! What is made for a browser, in a real one; nothing here needs root.

use super::report::Tier;
use crate::workspace;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10 * 60);
/// One at a time: how long a page keeps its user waiting is measured.
const LINE: &str = "test --package tests --features browser --test browser -- --test-threads=1";

pub(super) fn tier(tier: &mut Tier) {
    let mut command = workspace::cargo();
    command.args(LINE.split(' '));
    tier.tests("pages", command, LIMIT, 1);
}
