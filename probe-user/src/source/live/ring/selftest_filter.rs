//! Recognizes the self-test's own namespace and cgroup in the hooks' records.
//!
//! **Invariant:** no other namespace is taken for the self-test's, although its inode may soon be reused.

use crate::model::{
    fact::{Fact, Observation, Signal},
    id::NetnsKey,
    time::Timestamp,
};

#[derive(Debug, Default)]
pub(in super::super) struct SelfTestFilter {
    netns: Option<Netns>,
    cgroup: Option<u64>,
}

#[derive(Debug)]
struct Netns {
    inode: u32,
    since: Timestamp,
    /// The key in the hooks' records, once its creation was reported.
    key: Option<NetnsKey>,
    dropped: bool,
    /// Its inode is free again, or belongs to another namespace.
    over: bool,
}

impl SelfTestFilter {
    /// Adds the self-test's namespace, which was made with `inode` after `since`.
    pub(in super::super) fn add_netns(&mut self, inode: u32, since: Timestamp) {
        self.netns = Some(Netns { inode, since, key: None, dropped: false, over: false });
    }

    /// Adds the self-test's cgroup. Its inode is its id; ids are not reused.
    pub(in super::super) fn add_cgroup(&mut self, id: u64) {
        self.cgroup = Some(id);
    }

    /// Returns whether the observation is about the self-test's own namespace or cgroup.
    pub(in super::super) fn is(&mut self, seen: &Observation) -> bool {
        self.signal(seen).is_some()
    }

    /// Returns the signal that an observation proves, if it is about the self-test's own namespace or cgroup.
    pub(in super::super) fn signal(&mut self, seen: &Observation) -> Option<Signal> {
        let signal = match &seen.fact {
            Fact::NetnsCreated { netns, .. } => return self.netns.as_mut()?.created(*netns, seen.at),
            Fact::NetnsDropped { netns, .. } => return self.netns.as_mut()?.dropped(*netns, seen.at),
            Fact::NetnsFreed { netns } => return self.netns.as_mut()?.freed(*netns, seen.at),
            Fact::CgroupCreated { cgroup, .. } => (cgroup, Signal::CgroupCreated),
            Fact::CgroupRemoved { cgroup, .. } => (cgroup, Signal::CgroupRemoved),
            Fact::CgroupReleased { cgroup } => (cgroup, Signal::CgroupReleased),
            Fact::CgroupEmptied { cgroup } => (cgroup, Signal::CgroupEmptied),
            _ => return None,
        };
        let (cgroup, signal) = signal;
        (self.cgroup == Some(cgroup.key.id)).then_some(signal)
    }
}

impl Netns {
    fn created(&mut self, netns: NetnsKey, at: Timestamp) -> Option<Signal> {
        if netns.inode != self.inode || at < self.since {
            return None;
        }
        // The second creation with this inode is of another namespace.
        if self.key.is_some() {
            self.over = true;
            return None;
        }
        self.key = Some(netns);
        // An earlier end was of the namespace that had the inode until then.
        self.dropped = false;
        self.over = false;
        Some(Signal::NetnsCreated)
    }

    fn dropped(&mut self, netns: NetnsKey, at: Timestamp) -> Option<Signal> {
        if self.over || self.dropped || !self.is(netns, at) {
            return None;
        }
        self.dropped = true;
        Some(Signal::NetnsDropped)
    }

    fn freed(&mut self, netns: NetnsKey, at: Timestamp) -> Option<Signal> {
        if self.over || !self.is(netns, at) {
            return None;
        }
        self.over = true;
        Some(Signal::NetnsFreed)
    }

    /// Returns whether this is the self-test's namespace. Some hooks do not know the cookie.
    fn is(&self, netns: NetnsKey, at: Timestamp) -> bool {
        let cookie = self.key.map_or(0, |key| key.cookie);
        netns.inode == self.inode
            && at >= self.since
            && (netns.cookie == cookie || netns.cookie == 0 || cookie == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{SelfTestFilter, Signal};
    use crate::model::{
        fact::{Cgroup, Fact, Observation, Origin, Task},
        id::{CgroupKey, NetnsKey},
        time::Timestamp,
    };

    fn seen(at: u64, fact: Fact) -> Observation {
        Observation { at: Timestamp(at), origin: Origin::Kernel, fact }
    }

    fn created(at: u64, cookie: u64) -> Observation {
        seen(
            at,
            Fact::NetnsCreated { netns: NetnsKey::new(7, cookie), by: Task::default(), end_unseen: false },
        )
    }

    fn dropped(at: u64, cookie: u64) -> Observation {
        seen(at, Fact::NetnsDropped { netns: NetnsKey::new(7, cookie), by: Task::default() })
    }

    fn freed(at: u64) -> Observation {
        seen(at, Fact::NetnsFreed { netns: NetnsKey::new(7, 0) })
    }

    fn own() -> SelfTestFilter {
        let mut own = SelfTestFilter::default();
        own.add_netns(7, Timestamp(10));
        own
    }

    #[test]
    fn each_end_is_known_once_and_the_next_namespace_is_not() {
        let mut own = own();
        let told = [created(11, 1), dropped(12, 1), freed(13), created(14, 2), dropped(15, 2), freed(16)];
        let signals: Vec<_> = told.iter().map(|seen| own.signal(seen)).collect();
        let [one, two, three] = [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed];
        assert_eq!(signals, [Some(one), Some(two), Some(three), None, None, None]);
    }

    #[test]
    fn the_next_namespace_is_not_taken_for_it_even_if_the_freeing_is_not_told() {
        let mut own = own();
        assert!(own.is(&created(11, 0)) && own.is(&dropped(12, 0)));
        assert!(!own.is(&created(13, 0)) && !own.is(&dropped(14, 0)) && !own.is(&freed(15)));
    }

    #[test]
    fn an_earlier_namespace_of_that_number_is_not_it() {
        let mut own = own();
        assert!(!own.is(&created(9, 1)));
        assert!(own.is(&created(11, 2)));
        assert!(!own.is(&dropped(12, 1)));
    }

    /// Hooks that were taken over may have reported it while no agent ran.
    #[test]
    fn the_end_of_an_earlier_namespace_is_not_taken_for_its_own() {
        let mut own = own();
        assert!(!own.is(&created(7, 1)) && !own.is(&dropped(8, 1)) && !own.is(&freed(9)));
        assert!(own.is(&created(11, 2)) && own.is(&dropped(12, 2)) && own.is(&freed(13)));
    }

    /// The kernel frees an inode before it reports the end of the namespace.
    #[test]
    fn the_late_end_of_the_namespace_before_is_not_its_own() {
        for before in [vec![freed(11)], vec![dropped(11, 1), freed(12)]] {
            let mut own = own();
            for seen in &before {
                own.signal(seen);
            }
            let told = [created(13, 2), dropped(14, 2), freed(15)].map(|seen| own.signal(&seen));
            let all = [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed];
            assert_eq!(told, all.map(Some));
        }
    }

    #[test]
    fn a_cgroup_is_known_by_its_id() {
        let mut own = SelfTestFilter::default();
        own.add_cgroup(5);
        let removed = |id| {
            let cgroup =
                Cgroup { key: CgroupKey::new(1, id), path: "/x".to_owned(), level: 1, nested: false };
            seen(11, Fact::CgroupRemoved { cgroup, by: Task::default() })
        };
        assert_eq!(own.signal(&removed(5)), Some(Signal::CgroupRemoved));
        assert_eq!(own.signal(&removed(6)), None);
    }
}
