//! What containers can put on the bulk ring without end has a budget of bytes, since the agent writes down what it reads. What
//! comes above it in one second is left out, and told as records that found no room.
//!
//! **Invariant:** the position that is told stays before what was left out until that is told too: an agent that is killed
//! meanwhile loses nothing in silence.

use std::{mem, time::Duration};

use probe_common::{
    event::{Event, class},
    tally::Ring,
};
use tokio::time::Instant;

use super::poll::Taken;

/// How many bytes of records are taken in one [`WINDOW`]: some 2,000 records.
const BYTES: usize = 512 << 10;
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct BulkBudget {
    begun: Instant,
    spent: usize,
    /// The position in the ring after the last record.
    read: u64,
    left_out: Option<LeftOut>,
}

/// Records that were left out and not yet reported.
#[derive(Debug)]
struct LeftOut {
    count: u64,
    /// The position in the ring before the first of them.
    after: u64,
}

impl BulkBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, spent: 0, read: 0, left_out: None }
    }

    /// Begins the next second once this one is over. Returns how many records were left out.
    pub(super) fn renew(&mut self, now: Instant) -> Option<u64> {
        if now - self.begun < WINDOW {
            return None;
        }
        (self.begun, self.spent) = (now, 0);
        self.end()
    }

    /// Nothing more will be read. Returns how many records were left out.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.left_out.take().map(|left_out| left_out.count)
    }

    /// Whether the record is taken.
    pub(super) fn takes(&mut self, record: &Taken) -> bool {
        if record.ring == Ring::Lifecycle {
            return true;
        }
        let after = mem::replace(&mut self.read, record.after);
        if is_free(&record.bytes) {
            return true;
        }
        self.spent = self.spent.saturating_add(record.bytes.len());
        if self.spent <= BYTES {
            return true;
        }
        self.left_out.get_or_insert(LeftOut { count: 0, after }).count += 1;
        false
    }

    /// Up to where the bulk ring counts as read, if it was read to this position.
    pub(super) fn position(&self, read: u64) -> u64 {
        self.left_out.as_ref().map_or(read, |left_out| left_out.after)
    }
}

/// Programs in containers but the first one of each cost nothing, nor do their ends: this ring has them only if somebody
/// asked for all programs.
fn is_free(bytes: &[u8]) -> bool {
    match Event::parse(bytes) {
        Ok(Event::Exec(exec, _)) => exec.class & class::CONTAINER_TOP == 0,
        Ok(Event::Exit(exit)) => exit.class & (class::CONTAINER_TOP | class::CNI) == 0,
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use probe_common::{
        event::{Exit, Header, class, kind},
        tally::Ring,
    };
    use tokio::time::Instant;
    use zerocopy::IntoBytes as _;

    use super::{BYTES, BulkBudget, Taken, WINDOW};

    fn record(ring: Ring, class: u32, after: u64) -> Taken {
        let len = u32::try_from(size_of::<Exit>()).expect("small");
        let header = Header { len, kind: kind::EXIT, ..Header::default() };
        let exit = Exit { header, status: 0, class };
        Taken { bytes: exit.as_bytes().to_vec().into(), ring, after }
    }

    /// As many records as there is room for, and the rest of `count`.
    fn take(budget: &mut BulkBudget, ring: Ring, class: u32, count: u64) -> u64 {
        let taken = (1..=count).filter(|number| budget.takes(&record(ring, class, *number)));
        taken.count() as u64
    }

    #[test]
    fn what_comes_above_the_budget_is_left_out_and_counted() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        let room = (BYTES / size_of::<Exit>()) as u64;
        assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, room + 7), room);
        assert_eq!((budget.renew(begin), budget.position(room + 7)), (None, room), "it is not told yet");
        assert_eq!(take(&mut budget, Ring::Lifecycle, class::CONTAINER_TOP, 3), 3, "it has no budget");
        assert_eq!(take(&mut budget, Ring::Bulk, 0, 3), 3, "it is told because somebody asked for all");
        assert_eq!(
            take(&mut budget, Ring::Bulk, class::CNI | class::IN_CONTAINER, 3),
            0,
            "they only look like CNI"
        );
        assert_eq!(budget.renew(begin + WINDOW), Some(10));
        assert_eq!(budget.position(room + 20), room + 20);
        assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, 5), 5, "a new second");
        assert_eq!(budget.end(), None);
    }

    #[test]
    fn an_ordinary_second_is_taken_whole() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        for second in 0..5 {
            assert_eq!(budget.renew(begin + WINDOW * second), None);
            assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, 1000), 1000);
        }
    }
}
