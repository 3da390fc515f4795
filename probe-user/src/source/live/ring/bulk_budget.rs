//! Limits the bytes of records that containers can put on the bulk ring without end, because the agent writes
//! what it reads to disk. Records above the budget are left out, and reported as records that found no room.
//! An agent that did not run for a while may take everything that waits in the ring.
//!
//! **Invariant:** the reported position stays before the records that were left out until they are reported
//! too: an agent that is killed meanwhile loses nothing silently.

use std::{mem, time::Duration};

use probe_common::{
    event::{Event, class},
    tally::Ring,
};
use tokio::time::Instant;

use super::{BULK_BYTES, poll::Taken};

/// How many bytes of records are taken in each second while more come: some 600 records. What they change is
/// written to the journal of the state, in up to three times as many bytes.
const BYTES_PER_SECOND: usize = 160 << 10;
/// How many bytes are taken at once: as many as the ring holds.
const BURST_BYTES: usize = BULK_BYTES as usize;

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

    /// Begins the next second once one is over. Returns how many records were left out.
    pub(super) fn renew(&mut self, now: Instant) -> Option<u64> {
        let seconds = (now - self.begun).as_secs();
        if seconds == 0 {
            return None;
        }
        self.begun += Duration::from_secs(seconds);
        let regained = usize::try_from(seconds).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_SECOND);
        self.spent = self.spent.saturating_sub(regained);
        self.end()
    }

    /// Ends the budget: nothing more will be read. Returns how many records were left out.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.left_out.take().map(|left_out| left_out.count)
    }

    /// Returns whether the record is taken.
    pub(super) fn takes(&mut self, record: &Taken) -> bool {
        if record.ring == Ring::Lifecycle {
            return true;
        }
        let after = mem::replace(&mut self.read, record.after);
        if is_free(&record.bytes) {
            return true;
        }
        let spent = self.spent.saturating_add(record.bytes.len());
        if spent <= BURST_BYTES {
            self.spent = spent;
            return true;
        }
        self.left_out.get_or_insert(LeftOut { count: 0, after }).count += 1;
        false
    }

    /// Returns the position up to which the bulk ring counts as read, if it was read to `read`.
    pub(super) fn position(&self, read: u64) -> u64 {
        self.left_out.as_ref().map_or(read, |left_out| left_out.after)
    }
}

/// Returns whether a record costs nothing. Programs in containers except the first of each are free, and so
/// are their ends: this ring has them only if all programs were asked for.
fn is_free(bytes: &[u8]) -> bool {
    match Event::parse(bytes) {
        Ok(Event::Exec(exec, _)) => exec.class & class::CONTAINER_TOP == 0,
        Ok(Event::Exit(exit)) => exit.class & (class::CONTAINER_TOP | class::CNI) == 0,
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use probe_common::{
        event::{Exit, Header, class, kind},
        tally::Ring,
    };
    use tokio::time::Instant;
    use zerocopy::IntoBytes as _;

    use super::{BURST_BYTES, BYTES_PER_SECOND, BulkBudget, Taken};

    const SECOND: Duration = Duration::from_secs(1);

    fn record(ring: Ring, class: u32, after: u64) -> Taken {
        let len = u32::try_from(size_of::<Exit>()).expect("small");
        let header = Header { len, kind: kind::EXIT, ..Header::default() };
        let exit = Exit { header, status: 0, class };
        Taken { bytes: exit.as_bytes().to_vec().into(), ring, after }
    }

    /// Offers `count` records; returns how many were taken.
    fn take(budget: &mut BulkBudget, ring: Ring, class: u32, count: u64) -> u64 {
        let taken = (1..=count).filter(|number| budget.takes(&record(ring, class, *number)));
        taken.count() as u64
    }

    #[test]
    fn what_comes_above_the_budget_is_left_out_and_counted() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        let room = (BURST_BYTES / size_of::<Exit>()) as u64;
        assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, room + 7), room);
        assert_eq!((budget.renew(begin), budget.position(room + 7)), (None, room), "it is not told yet");
        assert_eq!(take(&mut budget, Ring::Lifecycle, class::CONTAINER_TOP, 3), 3, "it has no budget");
        assert_eq!(take(&mut budget, Ring::Bulk, 0, 3), 3, "it is told because somebody asked for all");
        assert_eq!(
            take(&mut budget, Ring::Bulk, class::CNI | class::IN_CONTAINER, 3),
            0,
            "they only look like CNI"
        );
        assert_eq!(budget.renew(begin + SECOND), Some(10));
        assert_eq!(budget.position(room + 20), room + 20);
        // The rest of the room counts too.
        let regained = (BYTES_PER_SECOND / size_of::<Exit>()) as u64;
        let taken = take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, room);
        assert!((regained..=regained + 1).contains(&taken), "{taken} in a new second");
        assert_eq!(budget.end(), Some(room - taken));
    }

    #[test]
    fn documents_give_the_budget() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let budget = format!("{} KiB a second", BYTES_PER_SECOND >> 10);
        for name in ["README.md", "docs/architecture.md", "docs/events.md", "docs/security.md"] {
            let text = std::fs::read_to_string(root.join(name)).expect(name);
            assert!(text.contains(&budget), "{name} does not tell of {budget}");
        }
    }

    #[test]
    fn an_ordinary_second_is_taken_whole() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        for second in 0..100 {
            assert_eq!(budget.renew(begin + SECOND * second), None);
            assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, 1000), 1000);
        }
    }

    /// The agent may renew the budget at any time, and no part of a second is lost.
    #[test]
    fn each_second_gives_its_room() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        let regained = (BYTES_PER_SECOND / size_of::<Exit>()) as u64;
        take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, (BURST_BYTES / size_of::<Exit>()) as u64);
        for late in [SECOND * 19 / 10, SECOND * 2, SECOND * 39 / 10] {
            budget.renew(begin + late);
            let taken = take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, regained);
            assert!(taken + 1 >= regained, "{taken} after {late:?}");
        }
    }

    /// The ring has filled meanwhile.
    #[test]
    fn what_waits_for_an_agent_that_did_not_run_is_taken_whole() {
        let begin = Instant::now();
        let mut budget = BulkBudget::new(begin);
        let waits = (BURST_BYTES / size_of::<Exit>()) as u64;
        take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, 1000);
        assert_eq!(budget.renew(begin + SECOND * 10), None);
        assert_eq!(take(&mut budget, Ring::Bulk, class::CONTAINER_TOP, waits), waits);
    }
}
