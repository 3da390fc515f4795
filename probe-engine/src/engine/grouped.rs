//! A tracked map whose rows can also be found by group: the sandboxes of one pod, for example.
//!
//! **Invariant:** a row that was lent out is put into its groups again before the next one is lent out. Until
//! then every search checks it separately. So a search finds what a walk over all rows would find, in the
//! same order.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt, iter,
    ops::Deref,
};

use super::tracked::Tracked;

/// A row that belongs to groups.
pub(in crate::engine) trait Grouped {
    type Group: Clone + Ord;

    fn groups(&self) -> impl Iterator<Item = Self::Group>;
}

pub(in crate::engine) struct Groups<K, V: Grouped> {
    rows: Tracked<K, V>,
    /// The groups of each row when it was last put into them.
    of: BTreeMap<K, Vec<V::Group>>,
    members: BTreeMap<V::Group, BTreeSet<K>>,
    /// The row that was lent out last. It may belong to other groups by now.
    lent: Option<K>,
}

impl<K: fmt::Debug, V: Grouped + fmt::Debug> fmt::Debug for Groups<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(f)
    }
}

impl<K, V: Grouped> Default for Groups<K, V> {
    fn default() -> Self {
        Self { rows: Tracked::default(), of: BTreeMap::new(), members: BTreeMap::new(), lent: None }
    }
}

impl<K, V: Grouped> Deref for Groups<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl<K: Ord + Clone, V: Grouped> Groups<K, V> {
    /// Returns the rows of a group, in the order of their keys.
    pub(in crate::engine) fn of(&self, group: V::Group) -> impl Iterator<Item = &V> {
        let lent = self.lent.as_ref();
        let mut own =
            lent.filter(|key| self.rows.get(key).is_some_and(|row| row.groups().any(|it| it == group)));
        let members = self.members.get(&group).into_iter().flatten();
        let mut others = members.filter(move |key| lent != Some(*key)).peekable();
        let keys = iter::from_fn(move || {
            let is_own_next = own.is_some_and(|own| others.peek().is_none_or(|other| own < *other));
            if is_own_next { own.take() } else { others.next() }
        });
        keys.filter_map(|key| self.rows.get(key))
    }

    /// Returns every group of more than one row, and perhaps some others.
    pub(in crate::engine) fn shared(&self) -> impl Iterator<Item = V::Group> {
        let known = self.members.iter().filter(|(_, rows)| rows.len() > 1).map(|(group, _)| group.clone());
        let of_lent = self.lent.iter().filter_map(|key| self.rows.get(key)).flat_map(V::groups);
        known.chain(of_lent)
    }

    /// Returns the keys of rows that may have changed, or were added or removed, since the last call.
    pub(in crate::engine) fn take_changed(&mut self) -> BTreeSet<K> {
        self.rows.take_changed()
    }

    pub(in crate::engine) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.lend(key);
        self.rows.get_mut(key)
    }

    /// Lends out a row without marking it, for a change that affects no verdict and no group.
    pub(in crate::engine) fn get_mut_unmarked(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut_unmarked(key)
    }

    pub(in crate::engine) fn insert(&mut self, key: K, row: V) -> Option<V> {
        self.lend(&key);
        self.rows.insert(key, row)
    }

    pub(in crate::engine) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        self.lend(&key);
        self.rows.entry(key)
    }

    pub(in crate::engine) fn remove(&mut self, key: &K) -> Option<V> {
        self.lend(key);
        self.rows.remove(key)
    }

    /// Drops rows for which `is_kept` returns false.
    pub(in crate::engine) fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        let mut gone = Vec::new();
        self.rows.retain(|key, row| {
            let keep = is_kept(key, row);
            if !keep {
                gone.push(key.clone());
            }
            keep
        });
        gone.iter().for_each(|key| self.regroup(key));
    }

    /// Calls `change` for every row. It returns whether it changed the row.
    pub(in crate::engine) fn update(&mut self, mut change: impl FnMut(&K, &mut V) -> bool) {
        let mut changed = Vec::new();
        self.rows.update(|key, row| {
            let is_changed = change(key, row);
            if is_changed {
                changed.push(key.clone());
            }
            is_changed
        });
        changed.iter().for_each(|key| self.regroup(key));
    }

    fn lend(&mut self, key: &K) {
        if self.lent.as_ref() != Some(key)
            && let Some(before) = self.lent.replace(key.clone())
        {
            self.regroup(&before);
        }
    }

    /// Puts a row into the groups that it is in now.
    fn regroup(&mut self, key: &K) {
        let row = self.rows.get(key);
        let before = self.of.get(key).map_or(&[][..], Vec::as_slice);
        let mut known = before.iter();
        let is_same = row.is_none_or(|row| row.groups().all(|group| known.next() == Some(&group)));
        if is_same && known.next().is_none() {
            return;
        }
        let now: Vec<V::Group> = row.map_or_else(Vec::new, |row| row.groups().collect());
        for group in before.iter().filter(|group| !now.contains(group)) {
            if let Some(members) = self.members.get_mut(group) {
                members.remove(key);
                if members.is_empty() {
                    self.members.remove(group);
                }
            }
        }
        for group in now.iter().filter(|group| !before.contains(group)) {
            self.members.entry(group.clone()).or_default().insert(key.clone());
        }
        if now.is_empty() {
            self.of.remove(key);
        } else {
            self.of.insert(key.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Grouped, Groups};

    impl Grouped for Vec<u8> {
        type Group = u8;

        fn groups(&self) -> impl Iterator<Item = u8> {
            self.iter().copied()
        }
    }

    #[test]
    fn a_row_is_found_in_the_groups_that_it_is_in_now() {
        let mut rows: Groups<u32, Vec<u8>> = Groups::default();
        let of = |rows: &Groups<u32, Vec<u8>>, group| rows.of(group).cloned().collect::<Vec<_>>();
        rows.insert(2, vec![7, 8]);
        rows.insert(1, vec![7]);
        assert_eq!(of(&rows, 7), [vec![7], vec![7, 8]]);
        // Its current groups count, though no other row was lent out since.
        rows.get_mut(&2).unwrap().remove(0);
        assert_eq!((of(&rows, 7), of(&rows, 8)), (vec![vec![7]], vec![vec![8]]));
        rows.entry(3).or_default().push(7);
        assert_eq!(of(&rows, 7), [vec![7], vec![7]]);
        assert_eq!(rows.shared().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), [7]);
        rows.update(|key, row| {
            row.retain(|it| *key != 3 || *it != 7);
            *key == 3
        });
        rows.retain(|key, _| *key != 1);
        assert_eq!(of(&rows, 7), Vec::<Vec<u8>>::new());
        rows.remove(&2);
        assert_eq!(of(&rows, 8), Vec::<Vec<u8>>::new());
        assert!(rows.members.is_empty() || rows.lent == Some(2));
        assert_eq!(rows.take_changed().into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
