//! A two-way index: the things that each row names, and the rows that name each thing.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct Links<Row, Thing> {
    of: BTreeMap<Row, Vec<Thing>>,
    by: BTreeMap<Thing, BTreeSet<Row>>,
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
            if let Some(rows) = self.by.get_mut(thing) {
                rows.remove(row);
                if rows.is_empty() {
                    self.by.remove(thing);
                }
            }
        }
        for thing in now.iter().filter(|thing| !before.contains(thing)) {
            self.by.entry(thing.clone()).or_default().insert(row.clone());
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
        self.by.get(thing).into_iter().flatten()
    }

    pub(super) fn is_named(&self, thing: &Thing) -> bool {
        self.by.contains_key(thing)
    }

    pub(super) fn things(&self) -> impl Iterator<Item = &Thing> {
        self.by.keys()
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
    }
}
