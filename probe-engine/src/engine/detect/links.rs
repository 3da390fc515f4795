//! A two-way index: the things that each row names, and the rows that name each thing.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

#[derive(Debug)]
pub(super) struct Links<Row, Thing> {
    of: BTreeMap<Row, Vec<Thing>>,
    by: BTreeMap<Thing, Rows<Row>>,
}

/// The rows that name a thing. Most things are named by one row, and a B-tree set of one takes the memory of
/// a set of eleven.
#[derive(Debug)]
enum Rows<Row> {
    One(Row),
    Many(BTreeSet<Row>),
}

impl<Row, Thing> Default for Links<Row, Thing> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), by: BTreeMap::new() }
    }
}

impl<Row: Clone + Ord, Thing: Clone + Ord> Links<Row, Thing> {
    /// Sets the things that a row names. Returns them and the things that it named before.
    pub(super) fn set(&mut self, row: &Row, now: impl IntoIterator<Item = Thing>) -> Vec<Thing> {
        let mut now: Vec<Thing> = now.into_iter().collect();
        now.sort_unstable();
        now.dedup();
        if self.of(row) == now {
            return now;
        }
        let before = self.of.remove(row).unwrap_or_default();
        for thing in before.iter().filter(|thing| !now.contains(thing)) {
            if self.by.get_mut(thing).is_some_and(|rows| rows.remove(row)) {
                self.by.remove(thing);
            }
        }
        for thing in now.iter().filter(|thing| !before.contains(thing)) {
            match self.by.entry(thing.clone()) {
                Entry::Vacant(none) => {
                    none.insert(Rows::One(row.clone()));
                }
                Entry::Occupied(mut rows) => rows.get_mut().insert(row.clone()),
            }
        }
        if !now.is_empty() {
            self.of.insert(row.clone(), now.clone());
        }
        now.extend(before);
        now
    }

    pub(super) fn of(&self, row: &Row) -> &[Thing] {
        self.of.get(row).map_or(&[], Vec::as_slice)
    }

    pub(super) fn by(&self, thing: &Thing) -> impl Iterator<Item = &Row> {
        self.by.get(thing).into_iter().flat_map(Rows::iter)
    }

    pub(super) fn is_named(&self, thing: &Thing) -> bool {
        self.by.contains_key(thing)
    }

    pub(super) fn things(&self) -> impl Iterator<Item = &Thing> {
        self.by.keys()
    }
}

impl<Row: Clone + Ord> Rows<Row> {
    fn insert(&mut self, row: Row) {
        match self {
            Self::One(only) if *only == row => {}
            Self::One(only) => *self = Self::Many(BTreeSet::from([only.clone(), row])),
            Self::Many(rows) => {
                rows.insert(row);
            }
        }
    }

    /// Removes a row, and returns whether none is left.
    fn remove(&mut self, row: &Row) -> bool {
        match self {
            Self::One(only) => only == row,
            Self::Many(rows) => {
                rows.remove(row);
                rows.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Row> {
        let (only, rows) = match self {
            Self::One(only) => (Some(only), None),
            Self::Many(rows) => (None, Some(rows)),
        };
        only.into_iter().chain(rows.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::Links;

    #[test]
    fn a_row_names_what_it_was_last_set_to() {
        let mut links: Links<u32, &str> = Links::default();
        assert_eq!(links.set(&1, ["b", "a", "b"]), ["a", "b"]);
        assert_eq!(links.set(&1, ["a", "b"]), ["a", "b"]);
        assert_eq!(links.set(&2, ["b"]), ["b"]);
        assert_eq!(links.by(&"b").collect::<Vec<_>>(), [&1, &2]);
        // The things that it named before are returned too, because their subjects must be judged again.
        assert_eq!(links.set(&1, ["c"]), ["c", "a", "b"]);
        assert_eq!((links.of(&1), links.is_named(&"a")), (&["c"][..], false));
        assert_eq!(links.set(&2, []), ["b"]);
        assert_eq!(links.things().collect::<Vec<_>>(), [&"c"]);
        assert_eq!(links.set(&3, ["c"]), ["c"]);
        assert_eq!(links.by(&"c").collect::<Vec<_>>(), [&1, &3]);
        assert_eq!((links.set(&1, []), links.set(&3, [])), (vec!["c"], vec!["c"]));
        assert!(!links.is_named(&"c"));
    }
}
