//! Goes on where the last agent has stopped: which hooks it left, how far it has read their rings, and what is told first.

use std::{collections::BTreeMap, mem};

use super::{
    super::attach::{Earlier, HookMaps, Pinning},
    LAST_TURNS, RingReader, SLACK, earlier,
    earlier::Left,
    poll::Taken,
    selftest_filter::SelfTestFilter,
};
use crate::{
    model::{
        fact::{Fact, Observation, Origin, RingsRead},
        time::Timestamp,
    },
    source::{channel::Batch, clock},
};

/// How many records of those that the last agent left are taken at a time.
const PORTION: usize = 2048;

/// For each set of hooks that is left, the number of the last event that was told.
pub(crate) struct Told(BTreeMap<u32, u64>);

impl Told {
    /// The number of the last event that was told by the agents that read these hooks and those after them; `None` if none of
    /// them left hooks, so that nothing shows it.
    pub(crate) fn of(&self, read: Option<RingsRead>) -> Option<u64> {
        let is_left = is_followed(self.0.keys().copied(), read?.hooks);
        self.last().filter(|_| is_left)
    }

    /// The number of the last event that was told by any agent that left hooks: 0 if it told none, `None` if none left any.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.values().copied().max()
    }
}

/// Whether an agent that had these hooks, or one after it, left some. The kernel numbers rings in the order in which they are
/// made, and an agent that replaced the hooks of another has removed them.
fn is_followed(mut left: impl Iterator<Item = u32>, hooks: u32) -> bool {
    left.any(|other| other >= hooks)
}
impl RingReader {
    /// What the agents before have told, as far as they left hooks.
    pub(crate) fn told(&self, earlier: &[Earlier]) -> Told {
        Told(self.left(earlier).map(|maps| (maps.hooks, maps.page.told())).collect())
    }

    /// When an agent before last read, as far as hooks were left; it may have read for five minutes more.
    pub(crate) fn read_before(&self, earlier: &[Earlier]) -> Option<Timestamp> {
        self.left(earlier).map(|maps| maps.read_at).max()
    }

    /// What the agents before have left.
    fn left<'a>(&'a self, earlier: &'a [Earlier]) -> impl Iterator<Item = &'a HookMaps> {
        let own = matches!(self.probe.pinning(), Pinning::Pinned { is_taken_over: true, .. });
        let own = own.then(|| self.probe.maps());
        earlier.iter().filter_map(|one| one.maps.as_ref()).chain(own)
    }

    /// Whether the last agent, or one after it, left hooks. Else those that are here were left before it.
    pub(crate) fn follows(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let left = earlier.iter().filter_map(|one| one.maps.as_ref()).map(|maps| maps.hooks);
        is_followed(left.chain([self.begins.hooks]), before.hooks)
    }

    /// The hooks that these replace.
    pub(crate) fn take_earlier(&mut self) -> Vec<Earlier> {
        self.probe.take_earlier()
    }

    /// Leaves out the self-test's own events from now on.
    pub(in super::super) fn leave_out(&mut self, own: SelfTestFilter) {
        self.own = own;
    }

    /// Keeps records that are to be told first.
    pub(in super::super) fn keep(&mut self, records: Vec<Taken>) {
        self.early.extend(records);
    }

    /// How far the rings were read before this reader.
    pub(crate) fn begins(&self) -> RingsRead {
        self.begins
    }

    /// Since when the hooks saw everything whose records come first.
    pub(crate) fn sees_since(&self, before: Option<RingsRead>, earlier: &mut [Earlier]) -> Timestamp {
        earlier::followed(before, self.begins, earlier)
            .map_or(self.begins.since, |hooks| hooks.begins().since)
    }

    /// Whether nothing happened unseen after the last agent had read so far.
    pub(crate) fn goes_on_from(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let is_pinned =
            matches!(self.probe.pinning(), Pinning::Pinned { unpinned, .. } if unpinned.is_empty());
        let followed =
            earlier.iter().find(|one| one.maps.as_ref().is_some_and(|maps| maps.hooks == before.hooks));
        is_pinned && followed.is_none_or(Earlier::outlived) && self.have_all_after(before, earlier)
    }

    /// Whether the rings still have all records behind this position.
    pub(crate) fn have_all_after(&self, before: &RingsRead, earlier: &[Earlier]) -> bool {
        let hooks = earlier.iter().filter_map(|one| one.maps.as_ref());
        let mut begins = hooks.map(HookMaps::begins).chain([self.begins]);
        begins.any(|begin| {
            begin.hooks == before.hooks
                && begin.lifecycle.position <= before.lifecycle.position
                && begin.bulk.position <= before.bulk.position
        })
    }

    /// Whether some hooks outlived the last agent, and others could not.
    pub(crate) fn is_partly_left(&self, earlier: &[Earlier]) -> bool {
        let is_partly =
            matches!(self.probe.pinning(), Pinning::Pinned { unpinned, .. } if !unpinned.is_empty());
        let were_partly = earlier.iter().any(|one| one.maps.is_some() && !one.outlived());
        (is_partly || were_partly) && self.left(earlier).next().is_some()
    }

    /// The first batches: what was read until now and is not among what the last agent had read, `before`. Records of hooks
    /// that these replace come first. The position after each batch is told in it.
    pub(crate) fn begin(&mut self, before: Option<RingsRead>, earlier: &mut [Earlier]) -> Vec<Batch> {
        let now = self.catch_up_early();
        let told = |hooks| before.filter(|before| before.hooks == hooks);
        let mut records = mem::take(&mut self.early);
        self.read = self.begins_after(told(self.begins.hooks));
        records.retain(|record| record.after > earlier::position(&self.read, record.ring));
        let mut batches = Vec::new();
        if let Some(hooks) = earlier::followed(before, self.read, earlier) {
            self.records = records;
            let own = self.decode(now);
            // Hooks of this agent that are as old saw all of that too.
            if matches!(self.probe.pinning(), Pinning::Pinned { is_taken_over: true, .. }) {
                self.read.since = now;
                self.probe.page().begin(now);
            }
            let mut left = Batch::new();
            let told = told(hooks.hooks).unwrap_or_default();
            Left { hooks, told }.drain(self.read.since, now, &mut left);
            // All at once: a position is one in the new rings, and says nothing of the earlier ones.
            batches.push(earlier::join(left, own, self.read.since));
        } else {
            for portion in records.chunks(PORTION) {
                if let Some(last) = batches.last_mut() {
                    self.tell_position(now, last);
                }
                for Taken { ring, after, .. } in portion {
                    *earlier::position_mut(&mut self.read, *ring) = *after;
                }
                self.records = portion.to_vec();
                batches.push(self.decode(now));
            }
        }
        let mut last = batches.pop().unwrap_or_default();
        self.count(now, &mut last);
        self.tell_end(now, &mut last);
        let at = now.saturating_sub(SLACK);
        last.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
        batches.push(last);
        batches
    }

    /// From where the rings are told. `before`: how far the last agent had read these very rings, if it did.
    fn begins_after(&self, before: Option<RingsRead>) -> RingsRead {
        let begins = self.begins;
        let Some(mut read) = before else {
            // Runs that did nothing were before an agent that is not followed, else the hooks would do nothing still.
            let unread = self.probe.totals().map_or(0, |totals| totals.unread());
            return RingsRead { unread, ..begins };
        };
        // Room that was given back is not read again.
        read.lifecycle.position = read.lifecycle.position.max(begins.lifecycle.position);
        read.bulk.position = read.bulk.position.max(begins.bulk.position);
        RingsRead { hooks: begins.hooks, since: begins.since, ..read }
    }

    /// Reads what came until now. Returns the time before that.
    fn catch_up_early(&mut self) -> Timestamp {
        let mut turns = 0;
        loop {
            let before = clock::now();
            let (records, emptied) = self.take_once();
            self.early.extend(records);
            turns += 1;
            if emptied.both() || turns == LAST_TURNS {
                return before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{RingsRead, Told};

    #[test]
    fn hooks_that_were_left_show_what_was_told_by_their_agents_and_later_ones_alone() {
        let told = Told(BTreeMap::from([(7, 40), (9, 44)]));
        let of = |hooks| told.of(Some(RingsRead { hooks, ..RingsRead::default() }));
        // The agent that made ring 9 has removed ring 8, and was killed before that was in the state.
        assert_eq!([7, 8, 9].map(of), [Some(44); 3]);
        // The agent of ring 10 had no pins.
        assert_eq!((of(10), told.of(None)), (None, None));
    }
}
