//! Tracks which namespace has an id, from the sequence of notifications.
//!
//! Ids are reused at once, the lowest first, so an id may belong to a namespace that is gone. The kernel
//! changes its table under a lock, but notifies after it has released the lock. When an id passes from one
//! namespace to the next, the second one's "named" may come before the first one's "gone", and that "gone"
//! must not be taken for the second one's end. So the notifications are counted: the fifth namespace that got
//! an id is gone with the fifth "gone". A namespace from before the counting began can break the count: one
//! that is gone by the count but still has its id is kept.
//!
//! **Invariant:** an entry exists only while its id is in use or a notification about it is outstanding.

use std::collections::HashMap;

use super::{reported::ReportedAddresses, wire::Nsid};
use crate::model::{fact::Task, id::NetnsKey};

/// Every id in use in our namespace, watched or not.
#[derive(Debug, Default)]
pub(super) struct NsidTable {
    ids: HashMap<Nsid, Id>,
}

/// A namespace that is watched.
#[derive(Debug)]
pub(super) struct WatchedNetns {
    pub(super) netns: NetnsKey,
    /// A task that was in it when it was first seen. The search begins with this task.
    pub(super) by: Task,
    pub(super) reported: ReportedAddresses,
    /// This is the n-th namespace with its id.
    turn: u64,
}

/// The outcome of a request to watch.
#[derive(Debug)]
pub(super) enum Watched {
    Begun,
    /// The namespace is already watched.
    Again,
    /// Another namespace had the id before and is gone; the kernel has not reported its end yet.
    After(WatchedNetns),
}

/// Which namespace a "gone" is about.
#[derive(Debug)]
pub(super) enum Gone {
    /// The watched namespace.
    Watched(WatchedNetns),
    /// An earlier namespace, by the count.
    Earlier,
    NotWatched,
}

#[derive(Debug, Default)]
struct Id {
    named: u64,
    gone: u64,
    life: Option<WatchedNetns>,
}

impl NsidTable {
    /// Restarts the count from the ids that are in use now. Returns the watched namespaces whose id is not in
    /// use; the others are assumed to have kept theirs.
    pub(super) fn reset(&mut self, in_use: &[Nsid]) -> Vec<WatchedNetns> {
        let mut before = std::mem::take(&mut self.ids);
        for nsid in in_use {
            let life =
                before.remove(nsid).and_then(|id| id.life).map(|life| WatchedNetns { turn: 1, ..life });
            self.ids.insert(*nsid, Id { named: 1, gone: 0, life });
        }
        before.into_values().filter_map(|id| id.life).collect()
    }

    /// Records that a namespace got `nsid`.
    pub(super) fn name(&mut self, nsid: Nsid) {
        let id = self.ids.entry(nsid).or_default();
        id.named = id.named.saturating_add(1);
    }

    /// Records that the namespace that had `nsid` is gone.
    pub(super) fn end(&mut self, nsid: Nsid) -> Gone {
        let id = self.ids.entry(nsid).or_default();
        id.gone = id.gone.saturating_add(1);
        // The namespace got its id before the count began.
        id.named = id.named.max(id.gone);
        let gone = match id.life.take_if(|life| life.turn <= id.gone) {
            Some(life) => Gone::Watched(life),
            None if id.life.is_some() => Gone::Earlier,
            None => Gone::NotWatched,
        };
        self.tidy(nsid);
        gone
    }

    /// Removes an id that is not in use, whatever the count says.
    pub(super) fn clear(&mut self, nsid: Nsid) -> Option<WatchedNetns> {
        self.ids.remove(&nsid).and_then(|id| id.life)
    }

    /// Watches the namespace `netns`, which has `nsid` now. All earlier notifications have been counted.
    pub(super) fn watch(&mut self, nsid: Nsid, netns: NetnsKey, by: Task) -> Watched {
        let id = self.ids.entry(nsid).or_default();
        // It has the id, so it was named, even if the notification has not come yet.
        let turn = id.named.max(id.gone + 1);
        if id.life.as_ref().is_some_and(|life| life.netns == netns && life.turn == turn) {
            return Watched::Again;
        }
        match id.life.replace(WatchedNetns { netns, by, reported: ReportedAddresses::default(), turn }) {
            // While it has the id, no other namespace has its inode: it was watched as an earlier namespace
            // with this inode.
            Some(before) if before.netns.inode == netns.inode && before.turn == turn => Watched::Begun,
            Some(before) => Watched::After(before),
            None => Watched::Begun,
        }
    }

    /// Keeps a namespace that seemed gone but still has `nsid`.
    pub(super) fn keep(&mut self, nsid: Nsid, life: WatchedNetns) {
        let id = self.ids.entry(nsid).or_default();
        let turn = id.named.max(id.gone + 1);
        id.life = Some(WatchedNetns { turn, ..life });
    }

    /// Returns the watched namespace with `nsid`, unless the id has passed to another one.
    pub(super) fn get_mut(&mut self, nsid: Nsid) -> Option<&mut WatchedNetns> {
        let id = self.ids.get_mut(&nsid)?;
        id.life.as_mut().filter(|life| life.turn >= id.named)
    }

    /// Returns the watched namespace with `nsid` like `get_mut`, for reading.
    pub(super) fn get(&self, nsid: Nsid) -> Option<&WatchedNetns> {
        let id = self.ids.get(&nsid)?;
        id.life.as_ref().filter(|life| life.turn >= id.named)
    }

    /// Returns the ids of the watched namespaces.
    pub(super) fn nsids(&self) -> Vec<Nsid> {
        let watched = self.ids.iter().filter(|(_, id)| id.life.is_some());
        watched.map(|(nsid, _)| *nsid).collect()
    }

    fn tidy(&mut self, nsid: Nsid) {
        if self.ids.get(&nsid).is_some_and(|id| id.life.is_none() && id.named == id.gone) {
            self.ids.remove(&nsid);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Gone, Nsid, NsidTable, Watched};
    use crate::model::{fact::Task, id::NetnsKey};

    const ID: Nsid = Nsid(0);

    fn key(inode: u32) -> NetnsKey {
        NetnsKey::new(inode, 0)
    }

    fn ended(gone: Gone) -> Option<NetnsKey> {
        match gone {
            Gone::Watched(life) => Some(life.netns),
            Gone::Earlier | Gone::NotWatched => None,
        }
    }

    #[test]
    fn the_next_holder_of_an_id_outlives_the_late_end_of_the_first() {
        let mut lives = NsidTable::default();
        lives.name(ID);
        assert!(matches!(lives.watch(ID, key(1), Task::default()), Watched::Begun));
        // The id passes on; the second "named" comes before the first "gone".
        lives.name(ID);
        assert!(lives.get_mut(ID).is_none(), "what is told of the id now is not about the first");
        let Watched::After(first) = lives.watch(ID, key(2), Task::default()) else {
            panic!("the first has ended")
        };
        assert_eq!(first.netns, key(1));
        assert!(matches!(lives.end(ID), Gone::Earlier));
        assert_eq!(ended(lives.end(ID)), Some(key(2)));
        assert!(lives.ids.is_empty());
    }

    #[test]
    fn the_same_inode_may_come_back_with_the_same_id() {
        let mut lives = NsidTable::default();
        lives.name(ID);
        lives.watch(ID, key(1), Task::default());
        assert!(matches!(lives.watch(ID, key(1), Task::default()), Watched::Again));
        lives.name(ID);
        assert!(matches!(lives.watch(ID, key(1), Task::default()), Watched::After(_)));
        assert!(matches!(lives.end(ID), Gone::Earlier));
        assert_eq!(ended(lives.end(ID)), Some(key(1)));
    }

    #[test]
    fn a_namespace_that_was_taken_for_an_earlier_one_with_its_inode_has_not_ended() {
        let mut lives = NsidTable::default();
        lives.name(ID);
        lives.watch(ID, NetnsKey::new(1, 7), Task::default());
        for asked in [key(1), NetnsKey::new(1, 8)] {
            assert!(matches!(lives.watch(ID, asked, Task::default()), Watched::Begun));
            assert_eq!(lives.get(ID).map(|life| life.netns), Some(asked));
        }
        assert_eq!(ended(lives.end(ID)), Some(NetnsKey::new(1, 8)));
        assert!(lives.ids.is_empty());
    }

    #[test]
    fn an_id_may_be_learned_of_before_its_notification() {
        let mut lives = NsidTable::default();
        lives.watch(ID, key(1), Task::default());
        lives.name(ID);
        assert!(lives.get_mut(ID).is_some());
        assert_eq!(ended(lives.end(ID)), Some(key(1)));
        assert!(lives.ids.is_empty());
    }

    /// The id passed on just before the count restarted, and the "gone" of the namespace that had it before
    /// comes afterwards.
    #[test]
    fn a_late_end_of_before_the_count_does_not_count() {
        let mut lives = NsidTable::default();
        assert!(lives.reset(&[]).is_empty());
        lives.name(ID);
        lives.watch(ID, key(1), Task::default());
        let Gone::Watched(life) = lives.end(ID) else { panic!("nobody else is known") };
        // The kernel reports that it still has its id.
        lives.keep(ID, life);
        assert!(lives.get_mut(ID).is_some());
        assert_eq!(ended(lives.end(ID)), Some(key(1)));
        assert!(lives.ids.is_empty());
    }

    #[test]
    fn a_reset_ends_what_has_no_id_and_keeps_the_rest() {
        let mut lives = NsidTable::default();
        for (nsid, inode) in [(0, 1), (1, 2)] {
            lives.name(Nsid(nsid));
            lives.watch(Nsid(nsid), key(inode), Task::default());
        }
        let ended_meanwhile: Vec<_> =
            lives.reset(&[Nsid(1), Nsid(2)]).iter().map(|life| life.netns).collect();
        assert_eq!(ended_meanwhile, [key(1)]);
        assert_eq!(lives.nsids(), [Nsid(1)]);
        assert_eq!(ended(lives.end(Nsid(1))), Some(key(2)));
        assert!(matches!(lives.end(Nsid(2)), Gone::NotWatched));
        assert!(lives.ids.is_empty());
    }

    proptest! {
        /// Namespaces take turns with one id. Each is watched while it has the id, and its "gone" may come
        /// after the next one's "named". Each ends once and never early, and no entry is left.
        #[test]
        fn each_holder_ends_once(overtaken in prop::collection::vec(any::<bool>(), 1..40)) {
            let mut lives = NsidTable::default();
            let mut ends = Vec::new();
            let holders = u32::try_from(overtaken.len()).expect("few");
            let mut late = false;
            for (holder, overtakes) in (0..holders).zip(overtaken) {
                lives.name(ID);
                if late {
                    if holder % 2 == 0 {
                        ends.extend(ended(lives.end(ID)));
                    } else if let Watched::After(life) = lives.watch(ID, key(holder), Task::default()) {
                        ends.push(life.netns);
                    }
                }
                if let Watched::After(life) = lives.watch(ID, key(holder), Task::default()) {
                    ends.push(life.netns);
                }
                if late && holder % 2 == 1 {
                    prop_assert!(matches!(lives.end(ID), Gone::Earlier));
                }
                prop_assert!(!ends.contains(&key(holder)));
                late = overtakes && holder + 1 < holders;
                if !late {
                    ends.extend(ended(lives.end(ID)));
                }
            }
            prop_assert_eq!(ends, (0..holders).map(key).collect::<Vec<_>>());
            prop_assert!(lives.ids.is_empty());
        }
    }
}
