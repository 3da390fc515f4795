//! Bounds of the histograms' buckets, in seconds.

use super::family::{Family, LATENCY, RUNTIME_LAG};

/// The buckets of the kubelet's `kubelet_pod_start_duration_seconds` (Kubernetes 1.29 and later), so that the
/// two can be compared, and smaller buckets for the phases of a start.
pub(super) const SECONDS: [f64; 31] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0,
    60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// Buckets for the delay of an event: milliseconds, or longer if it waits for a pod's name or for a runtime.
pub(super) const FINE: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

pub(super) fn of(family: &Family) -> &'static [f64] {
    if [LATENCY.name, RUNTIME_LAG.name].contains(&family.name) { &FINE } else { &SECONDS }
}
