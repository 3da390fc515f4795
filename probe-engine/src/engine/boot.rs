//! What a boot's [recovery](crate::model::recovery) means: its milestones and periods, means and ranks over
//! boots, and which programs order a restart.

pub mod average;
pub mod comparable;
pub mod group;
pub mod network;
pub mod numbers;
pub(crate) mod order;
pub mod report;
pub mod restart;
pub mod spread;
pub mod target;
#[cfg(test)]
mod tests;
pub mod what_if;

use std::time::Duration;

/// A pod belongs to the recovery if it is back within this time of the boot, or was there before.
pub(crate) const WINDOW: Duration = Duration::from_secs(30 * 60);
