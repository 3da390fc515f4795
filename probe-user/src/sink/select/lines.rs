//! The stream of changes as lines: those that a filter keeps and the rate allows, in one format.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{filter::Filter, rate::Rate};
use crate::{
    model::{change::Change, time::Timestamp},
    sink::{Format, Label, Missing, Sink},
};

/// The lines that the owner of the destination has not taken yet.
pub(crate) struct Lines {
    filter: Filter,
    format: Box<dyn Format>,
    rate: Option<Rate>,
    /// How many changes the rate has left out since the last line.
    left_out: u64,
    /// How many changes the rate has left out since the start.
    all_left_out: Arc<AtomicU64>,
    bytes: Vec<u8>,
}

impl Lines {
    #[must_use]
    pub(crate) fn new(filter: Filter, format: Box<dyn Format>) -> Self {
        Self { filter, format, rate: None, left_out: 0, all_left_out: Arc::default(), bytes: Vec::new() }
    }

    /// Leaves out the changes above this rate.
    pub(crate) fn limit(&mut self, rate: Rate) {
        self.rate = Some(rate);
    }

    /// The counter of changes that the rate left out, for the metrics.
    pub(crate) fn left_out(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.all_left_out)
    }

    /// The bytes made so far. The caller empties them.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes how many changes the rate has left out, if it would allow a change now, or at the end.
    pub(crate) fn say_left_out(&mut self, now: Timestamp, is_end: bool, label: &Label) {
        if is_end || self.rate.as_ref().is_some_and(|rate| rate.has_room(now)) {
            self.count_left_out(label);
        }
    }

    fn count_left_out(&mut self, label: &Label) {
        if self.left_out > 0 {
            self.format.missed(mem::take(&mut self.left_out), Missing::Rate, label, &mut self.bytes);
        }
    }

    /// A line that says how many changes were not written before the next one.
    pub(crate) fn missed(&mut self, count: u64, label: &Label) -> Vec<u8> {
        let mut line = Vec::new();
        self.format.missed(count, Missing::Unwritten, label, &mut line);
        line
    }
}

impl Sink for Lines {
    fn on_change(&mut self, change: &Change, label: &Label) {
        if !self.filter.keeps(change) {
            return;
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.allows(change)) {
            self.left_out += 1;
            self.all_left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.count_left_out(label);
        self.format.write(change, label, &mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZero, sync::atomic::Ordering};

    use super::Lines;
    use crate::{
        model::{
            change::{Change, ChangeKind, Context},
            fact::{Loss, Origin},
            time::Timestamp,
        },
        sink::{
            Format, Label, Missing, Sink as _,
            select::{filter::Filter, rate::Rate},
        },
    };

    /// Writes the number of each change as a line.
    struct Numbers;

    impl Format for Numbers {
        fn write(&mut self, change: &Change, _: &Label, out: &mut Vec<u8>) {
            out.extend(format!("{} ", change.seq).bytes());
        }

        fn missed(&mut self, count: u64, why: Missing, _: &Label, out: &mut Vec<u8>) {
            out.extend(format!("{why:?}:{count} ").bytes());
        }
    }

    #[test]
    fn what_comes_faster_than_allowed_is_left_out_and_counted_but_no_gap_is() {
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        let mut lines = Lines::new(Filter::default(), Box::new(Numbers));
        let left_out = lines.left_out();
        lines.limit(Rate::new(NonZero::new(3).expect("not 0")));
        let gap = ChangeKind::Gap { what: Loss::BulkRing, count: 3, lasted: None };
        let mut tell = |seq, second: u64, what: &ChangeKind| {
            let at = Timestamp(second * 1_000_000_000);
            let (context, what) = (Context::default(), what.clone());
            lines.on_change(&Change { seq, at, origin: Origin::Kernel, late: false, context, what }, &label);
            String::from_utf8(std::mem::take(lines.bytes())).expect("text")
        };
        let other = &ChangeKind::CgroupEmptied;
        let burst: String = (1..=5).map(|seq| tell(seq, 100, other)).collect();
        assert_eq!(burst, "1 2 3 ");
        assert_eq!(tell(6, 100, &gap), "Rate:2 6 ");
        assert_eq!(tell(7, 119, other), "");
        // After a third of a minute there is room for one more change, and none for a late one.
        assert_eq!(tell(8, 120, other), "Rate:1 8 ");
        assert_eq!(tell(9, 90, other), "");
        // At most one minute is saved.
        assert_eq!(tell(10, 5000, other), "Rate:1 10 ");
        let burst: String = (11..=20).map(|seq| tell(seq, 5000, other)).collect();
        assert_eq!(burst, "11 12 ");
        let mut say = |second: u64, is_end| {
            lines.say_left_out(Timestamp(second * 1_000_000_000), is_end, &label);
            String::from_utf8(std::mem::take(lines.bytes())).expect("text")
        };
        assert_eq!(say(5019, false), "");
        assert_eq!(say(5020, false), "Rate:8 ");
        assert_eq!(say(5021, true), "", "it was said");
        assert_eq!(left_out.load(Ordering::Relaxed), 2 + 1 + 1 + 8);
    }
}
