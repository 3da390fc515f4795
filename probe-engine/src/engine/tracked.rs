//! A map that remembers which of its rows may have changed since the last query.
//!
//! **Invariant:** every mutable access to a row marks the row's key, except the one named `unmarked`. So
//! whoever keeps something derived from the rows cannot miss a change.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    mem,
    ops::{Deref, DerefMut, RangeBounds},
};

#[derive(Clone, Debug)]
pub(crate) struct Tracked<K, V> {
    rows: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<K, V> Deref for Tracked<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl<'a, K, V> IntoIterator for &'a Tracked<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::collections::btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<K: Ord + Clone, V> Tracked<K, V> {
    /// Returns the keys of rows that may have changed, or were added or removed, since the last call.
    pub(in crate::engine) fn take_changed(&mut self) -> BTreeSet<K> {
        mem::take(&mut self.changed)
    }

    pub(in crate::engine) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let row = self.rows.get_mut(key)?;
        self.changed.insert(key.clone());
        Some(row)
    }

    /// Lends out a row without marking it, for a change that affects no verdict by itself.
    pub(in crate::engine) fn get_mut_unmarked(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key)
    }

    pub(in crate::engine) fn insert(&mut self, key: K, row: V) -> Option<V> {
        self.changed.insert(key.clone());
        self.rows.insert(key, row)
    }

    pub(in crate::engine) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        self.changed.insert(key.clone());
        self.rows.entry(key)
    }

    pub(in crate::engine) fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.changed.insert(key.clone());
        Some(row)
    }

    /// Drops rows for which `is_kept` returns false.
    pub(in crate::engine) fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        let changed = &mut self.changed;
        self.rows.retain(|key, row| {
            let keep = is_kept(key, row);
            if !keep {
                changed.insert(key.clone());
            }
            keep
        });
    }

    /// Calls `change` for every row. It returns whether it changed the row.
    pub(in crate::engine) fn update(&mut self, mut change: impl FnMut(&K, &mut V) -> bool) {
        for (key, row) in &mut self.rows {
            if change(key, row) {
                self.changed.insert(key.clone());
            }
        }
    }

    /// Returns the rows of a range, and marks each that the iterator yields.
    pub(in crate::engine) fn range_mut(
        &mut self,
        range: impl RangeBounds<K>,
    ) -> impl Iterator<Item = (&K, &mut V)> {
        let changed = &mut self.changed;
        self.rows.range_mut(range).inspect(move |(key, _)| {
            changed.insert((*key).clone());
        })
    }
}

/// A value that remembers whether it was lent out to be changed.
#[derive(Debug, Default)]
pub(crate) struct Flagged<T> {
    value: T,
    is_changed: bool,
}

impl<T> Flagged<T> {
    /// Returns the value, if it may have changed since the last call.
    pub(in crate::engine) fn take_changed(&mut self) -> Option<&mut T> {
        mem::take(&mut self.is_changed).then_some(&mut self.value)
    }
}

impl<T> Deref for Flagged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Flagged<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::Tracked;

    #[test]
    fn every_way_to_change_a_row_marks_it() {
        let mut rows: Tracked<u32, u32> = Tracked::default();
        let marked = |rows: &mut Tracked<u32, u32>| rows.take_changed().into_iter().collect::<Vec<_>>();
        for key in 0..6 {
            rows.insert(key, key);
        }
        assert_eq!(marked(&mut rows), [0, 1, 2, 3, 4, 5]);
        assert!(marked(&mut rows).is_empty());
        let _ = rows.get_mut(&1);
        let _ = rows.get_mut(&9);
        *rows.entry(7).or_default() += 1;
        assert_eq!(marked(&mut rows), [1, 7]);
        rows.remove(&7);
        rows.remove(&8);
        rows.retain(|key, _| *key != 2);
        assert_eq!(marked(&mut rows), [2, 7]);
        rows.update(|key, row| {
            *row += u32::from(*key == 3);
            *key == 3
        });
        assert_eq!(rows.range_mut(4..).map(|(key, _)| *key).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(marked(&mut rows), [3, 4, 5]);
        assert_eq!(rows.len(), 5);
    }
}
