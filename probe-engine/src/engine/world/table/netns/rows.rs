//! The table of network namespaces: every remembered life, also by inode.
//!
//! **Invariant:** the table is bounded. A namespace that a listing shows is never forgotten to make room.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Deref,
};

use crate::{
    engine::{
        grouped::Groups,
        world::table::netns::{Group, Netns, SAME_BATCH, State, passed_at, watch::Budget},
    },
    model::{id::NetnsKey, time::Timestamp},
};

/// At most this many lives are remembered, with those that are over. A node's pods need far fewer, but a
/// container can make ten thousand a second.
const LIVES: usize = 8192;

/// At most this many lives are remembered whose teardown is under way. The end of such a teardown may never
/// be reported.
const DYING: usize = 1024;

/// All lives, also by inode.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(in crate::engine::world) rows: Groups<u64, Netns>,
    /// How many of the watches that netlink may be asked for in the present second were asked for.
    pub(crate) watches: Budget,
    /// Up to when it was reported that nobody heard netlink.
    pub(crate) unheard_until: Timestamp,
    by_inode: BTreeMap<u32, Vec<u64>>,
    /// The number of the next life.
    pub(crate) next: u64,
}

impl Deref for Table {
    type Target = BTreeMap<u64, Netns>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<u64> {
        self.rows.take_changed()
    }

    pub(crate) fn get(&self, life: u64) -> Option<&Netns> {
        self.rows.get(&life)
    }

    /// The lives of an inode, oldest first.
    pub(crate) fn lives(&self, inode: u32) -> impl DoubleEndedIterator<Item = &Netns> {
        self.by_inode.get(&inode).into_iter().flatten().filter_map(|life| self.rows.get(life))
    }

    /// The lives of a group, oldest first.
    pub(crate) fn group(&self, group: Group) -> impl Iterator<Item = &Netns> {
        self.rows.of(group)
    }

    pub(crate) fn live(&self, inode: u32) -> Option<&Netns> {
        self.lives(inode).rev().find(|row| row.is_live())
    }

    /// The latest life that has this key. Cookies decide where both sides know them.
    pub(crate) fn of(&self, key: NetnsKey) -> Option<&Netns> {
        self.lives(key.inode).rev().find(|row| same(row.key, key))
    }

    pub(in crate::engine::world) fn insert(&mut self, row: Netns) {
        let lives = self.by_inode.entry(row.key.inode).or_default();
        if !lives.contains(&row.life) {
            lives.push(row.life);
            lives.sort_unstable();
        }
        self.next = self.next.max(row.life.saturating_add(1));
        self.rows.insert(row.life, row);
    }

    /// The living namespace that has this key and had begun by `at`.
    pub(crate) fn live_at(&self, key: NetnsKey, at: Timestamp) -> Option<u64> {
        let live = self.lives(key.inode).rev().find(|row| {
            // A cookie belongs to one life, so times from different sources need not be compared.
            let is_same = key.cookie != 0 && row.key == key;
            row.is_live()
                && (is_same || same(row.key, key) && row.created_at.is_none_or(|created| created <= at))
        });
        live.map(|row| row.life)
    }

    pub(in crate::engine::world) fn infer_end(&mut self, life: u64) {
        if let Some(row) = self.rows.get_mut(&life) {
            row.end_inferred = true;
        }
    }

    pub(in crate::engine::world) fn begin(&mut self, row: Netns) -> u64 {
        if self.rows.len() >= LIVES {
            self.make_room();
        }
        let life = self.next;
        self.insert(Netns { life, ..row });
        life
    }

    /// Forgets half of the lives that a listing does not show, the oldest of each state first: freed ones,
    /// then ones in teardown, then living ones, whose end may never be reported.
    fn make_room(&mut self) {
        let mut all: Vec<(u8, u64)> = Vec::new();
        for row in self.rows.of(Group::Unlisted) {
            let rank = match row.state {
                State::Freed { .. } => 0,
                State::Dropped { .. } => 1,
                State::Live => 2,
            };
            all.push((rank, row.life));
        }
        all.sort_unstable();
        for (_, life) in all.into_iter().take(LIVES / 2) {
            self.remove(life);
        }
    }

    pub(in crate::engine::world) fn len(&self) -> usize {
        self.rows.len()
    }

    /// A record was lost: any namespace may have ended.
    pub(in crate::engine::world) fn mark_gapped(&mut self) {
        self.rows.update(|_, row| !mem::replace(&mut row.gapped, true));
    }

    /// Removes the marks of namespaces that a listing has shown since `since`.
    pub(in crate::engine::world) fn heal(&mut self, since: Timestamp) {
        self.rows.update(|_, row| {
            row.is_live() && row.found_at >= Some(since) && mem::replace(&mut row.gapped, false)
        });
    }

    /// Forgets the namespaces that no listing shows, and whose end may be among lost records: after the quiet
    /// time that follows a loss, a listing has those that a process is in. Of one that something else holds,
    /// its end is reported.
    pub(in crate::engine::world) fn forget_unseen(&mut self) {
        let unlisted = self.rows.of(Group::Unlisted).filter(|row| row.is_live() && row.gapped);
        for life in unlisted.map(|row| row.life).collect::<Vec<_>>() {
            self.remove(life);
        }
    }

    /// Forgets the lives that were over by `old`. `end_reported`: a hook reports the end of teardowns.
    pub(in crate::engine::world) fn reap(&mut self, old: Timestamp, end_reported: bool) {
        // This must come before the rows that show the passed drop are forgotten.
        if let Some(passed) = passed_at(self.rows.of(Group::Over)) {
            self.rows.update(|_, row| {
                row.ending_since().is_some_and(|at| at + SAME_BATCH < passed)
                    && !mem::replace(&mut row.end_inferred, true)
            });
        }
        let mut gone: Vec<u64> = self
            .rows
            .of(Group::Over)
            .filter(|row| match row.state {
                State::Live => false,
                State::Dropped { at } => at <= old && (!end_reported || row.end_inferred),
                State::Freed { at } => at <= old,
            })
            .map(|row| row.life)
            .collect();
        // Lives are numbered in order, so these are the lives that began first.
        let over = self.rows.of(Group::Over);
        let dying: Vec<u64> =
            over.filter(|row| matches!(row.state, State::Dropped { .. })).map(|row| row.life).collect();
        gone.extend(dying.iter().take(dying.len().saturating_sub(DYING)));
        for life in gone {
            self.remove(life);
        }
    }

    pub(in crate::engine::world) fn remove(&mut self, life: u64) {
        let Some(row) = self.rows.remove(&life) else { return };
        if let Some(lives) = self.by_inode.get_mut(&row.key.inode) {
            lives.retain(|other| *other != life);
            if lives.is_empty() {
                self.by_inode.remove(&row.key.inode);
            }
        }
    }
}

/// Whether two keys of one inode can be those of one life. Hooks on kernels before 5.14 and the hooks of
/// teardown give no cookie.
pub(crate) fn same(one: NetnsKey, other: NetnsKey) -> bool {
    one.cookie == 0 || other.cookie == 0 || one.cookie == other.cookie
}
