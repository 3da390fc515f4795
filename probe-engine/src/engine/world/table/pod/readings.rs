//! The counters of a pod's cgroup while the pod starts.

use serde::{Deserialize, Serialize};

use crate::model::{fact::Pressure, time::Timestamp};

/// At most this many readings are kept. If there are more, every second one is dropped. The counters only
/// rise, so no count is lost.
const READINGS: usize = 64;

/// The counters of a pod's cgroup with the time of each reading, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Readings(Vec<(Timestamp, Pressure)>);

impl Readings {
    /// Adds a reading, unless a later one is known.
    pub(in crate::engine::world) fn add(&mut self, at: Timestamp, pressure: Pressure) {
        if self.0.last().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.0.push((at, pressure));
        if self.0.len() > READINGS {
            // The latest reading stays.
            let mut left = self.0.len();
            self.0.retain(|_| {
                left -= 1;
                left.is_multiple_of(2)
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Timestamp, Pressure)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{READINGS, Readings};
    use crate::model::{fact::Pressure, time::Timestamp};

    #[test]
    fn of_many_readings_the_latest_stays() {
        let mut readings = Readings::default();
        for at in 0..10_000 {
            readings.add(Timestamp(at), Pressure::default());
            assert!(readings.0.len() <= READINGS);
            assert_eq!(readings.0.last().map(|(last, _)| last.0), Some(at));
        }
        readings.add(Timestamp(5), Pressure::default());
        assert_eq!(readings.0.last().map(|(last, _)| last.0), Some(9_999));
    }
}
