//! Continues where the last agent stopped: which hooks it left, how far it had read their rings, and what is
//! reported first.

use std::{collections::BTreeMap, mem};

use super::{
    super::attach::{Earlier, HookMaps, Pinning},
    MAX_LAST_POLLS, RingReader, SLACK, earlier,
    earlier::Left,
    poll::Taken,
    selftest_filter::SelfTestFilter,
};
use crate::{
    model::{
        fact::{Fact, Observation, Origin, RingsRead},
        time::Timestamp,
    },
    source::{node::clock, task::channel::Batch},
};

/// How many of the records that the last agent left are taken at a time.
const PORTION_RECORDS: usize = 2048;

/// The number of the last event that was reported, for each set of hooks that was left.
pub(crate) struct LastReported(BTreeMap<u32, u64>);

impl LastReported {
    /// Returns the number of the last event that was reported by the agents that read these hooks, or by
    /// later agents; `None` if none of them left hooks.
    pub(crate) fn of(&self, read: Option<RingsRead>) -> Option<u64> {
        let is_left = is_followed(self.0.keys().copied(), read?.hooks);
        if is_left { self.last() } else { None }
    }

    /// Returns the number of the last event that was reported by any agent that left hooks: 0 if there was
    /// none, `None` if no agent left hooks.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.values().copied().max()
    }
}

/// Returns whether the agent that had these hooks, or a later one, left some. The kernel numbers rings in the
/// order in which they are made, and an agent that replaced another's hooks has removed them.
fn is_followed(mut left: impl Iterator<Item = u32>, hooks: u32) -> bool {
    left.any(|other| other >= hooks)
}

impl RingReader {
    /// Returns what the earlier agents have reported, as far as they left hooks.
    pub(crate) fn told(&self, earlier: &[Earlier]) -> LastReported {
        LastReported(self.left(earlier).map(|maps| (maps.hooks, maps.page.told())).collect())
    }

    /// Returns when an earlier agent last read, as far as hooks were left; it may have read for five minutes
    /// more.
    pub(crate) fn read_before(&self, earlier: &[Earlier]) -> Option<Timestamp> {
        self.left(earlier).map(|maps| maps.read_at).max()
    }

    /// Returns the hooks that earlier agents left.
    fn left<'a>(&'a self, earlier: &'a [Earlier]) -> impl Iterator<Item = &'a HookMaps> {
        let own = matches!(self.probe.pinning(), Pinning::Pinned { is_taken_over: true, .. });
        let own = own.then(|| self.probe.maps());
        earlier.iter().filter_map(|one| one.maps.as_ref()).chain(own)
    }

    /// Returns whether the agent that had `before`, or a later one, left hooks. If not, the hooks that are
    /// left are older.
    pub(crate) fn follows(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let left = earlier.iter().filter_map(|one| one.maps.as_ref()).map(|maps| maps.hooks);
        is_followed(left.chain([self.begins.hooks]), before.hooks)
    }

    /// Takes the hooks that these replace.
    pub(crate) fn take_earlier(&mut self) -> Vec<Earlier> {
        self.probe.take_earlier()
    }

    /// Leaves out the self-test's own events from now on.
    pub(in super::super) fn leave_out(&mut self, own: SelfTestFilter) {
        self.own = own;
    }

    /// Keeps records that are to be reported first.
    pub(in super::super) fn keep(&mut self, records: Vec<Taken>) {
        self.early.extend(records);
    }

    /// Returns how far the rings were read before this reader.
    pub(crate) fn begins(&self) -> RingsRead {
        self.begins
    }

    /// Returns since when the hooks whose records come first have seen everything.
    pub(crate) fn sees_since(&self, before: Option<RingsRead>, earlier: &mut [Earlier]) -> Timestamp {
        earlier::followed(before, self.begins, earlier)
            .map_or(self.begins.since, |hooks| hooks.begins().since)
    }

    /// Returns whether nothing was missed after the position `before` of the last agent.
    pub(crate) fn goes_on_from(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let is_pinned =
            matches!(self.probe.pinning(), Pinning::Pinned { unpinned, .. } if unpinned.is_empty());
        let followed =
            earlier.iter().find(|one| one.maps.as_ref().is_some_and(|maps| maps.hooks == before.hooks));
        is_pinned && followed.is_none_or(Earlier::outlived) && self.have_all_after(before, earlier)
    }

    /// Returns whether the rings still have all records after this position.
    pub(crate) fn have_all_after(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let hooks = earlier.iter().filter_map(|one| one.maps.as_ref());
        let mut begins = hooks.map(HookMaps::begins).chain([self.begins]);
        begins.any(|begin| {
            begin.hooks == before.hooks
                && begin.lifecycle.position <= before.lifecycle.position
                && begin.bulk.position <= before.bulk.position
        })
    }

    /// Returns whether some hooks outlived the last agent, and others could not.
    pub(crate) fn is_partly_left(&self, earlier: &[Earlier]) -> bool {
        let is_partly =
            matches!(self.probe.pinning(), Pinning::Pinned { unpinned, .. } if !unpinned.is_empty());
        let were_partly = earlier.iter().any(|one| one.maps.is_some() && !one.outlived());
        (is_partly || were_partly) && self.left(earlier).next().is_some()
    }

    /// Returns the first batches: the records until now that the last agent had not read; `before` is how far
    /// it had read. Records of hooks that these replace come first. Each batch ends with the position after
    /// it.
    pub(crate) fn begin(&mut self, before: Option<RingsRead>, earlier: &mut [Earlier]) -> Vec<Batch> {
        let now = self.catch_up_early();
        let mut records = mem::take(&mut self.early);
        self.read = self.begins_after(before.filter(|before| before.hooks == self.begins.hooks));
        records.retain(|record| record.after > earlier::position(&self.read, record.ring));
        let mut batches = Vec::new();
        if let Some(hooks) = earlier::followed(before, self.read, earlier) {
            self.records = records;
            let own = self.decode(now);
            // This agent's hooks were taken over, and may be as old: they saw the same events.
            if matches!(self.probe.pinning(), Pinning::Pinned { is_taken_over: true, .. }) {
                self.read.since = now;
                self.probe.page().begin(now);
            }
            let mut left = Batch::new();
            let reported = before.filter(|before| before.hooks == hooks.hooks).unwrap_or_default();
            Left { hooks, reported }.drain(self.read.since, now, &mut left);
            // This is one batch: a position is in the new rings, and says nothing about the earlier ones.
            batches.push(earlier::join(left, own, self.read.since));
        } else {
            for portion in records.chunks(PORTION_RECORDS) {
                if let Some(last) = batches.last_mut() {
                    self.report_position(now, last);
                }
                for Taken { ring, after, .. } in portion {
                    *earlier::position_mut(&mut self.read, *ring) = *after;
                }
                self.records = portion.to_vec();
                batches.push(self.decode(now));
            }
        }
        let mut last = batches.pop().unwrap_or_default();
        let since = earlier::waiting_since(batches.first().unwrap_or(&last), now);
        self.count(now, since, &mut last);
        self.report_end(now, &mut last);
        let at = now.saturating_sub(SLACK);
        last.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
        batches.push(last);
        batches
    }

    /// Returns the position from which the rings are reported. `before`: how far the last agent had read
    /// these rings, if it did.
    fn begins_after(&self, before: Option<RingsRead>) -> RingsRead {
        let begins = self.begins;
        let Some(mut read) = before else {
            // Runs that did nothing were before an agent that is not followed; otherwise the hooks would
            // still do nothing.
            let unread = self.probe.totals().map_or(0, |totals| totals.unread());
            return RingsRead { unread, ..begins };
        };
        // Room that was freed is not read again.
        read.lifecycle.position = read.lifecycle.position.max(begins.lifecycle.position);
        read.bulk.position = read.bulk.position.max(begins.bulk.position);
        RingsRead { hooks: begins.hooks, since: begins.since, ..read }
    }

    /// Reads the records until now. Returns the time before that.
    fn catch_up_early(&mut self) -> Timestamp {
        let mut polls = 0;
        loop {
            let before = clock::now();
            let (records, emptied) = self.take_once();
            self.early.extend(records);
            polls += 1;
            if emptied.both() || polls == MAX_LAST_POLLS {
                return before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{LastReported, RingsRead};

    #[test]
    fn hooks_that_were_left_show_what_was_told_by_their_agents_and_later_ones_alone() {
        let told = LastReported(BTreeMap::from([(7, 40), (9, 44)]));
        let of = |hooks| told.of(Some(RingsRead { hooks, ..RingsRead::default() }));
        // The agent that made ring 9 has removed ring 8, and was killed before it saved that.
        assert_eq!([7, 8, 9].map(of), [Some(44); 3]);
        // The agent of ring 10 had no pins.
        assert_eq!((of(10), told.of(None)), (None, None));
    }
}
