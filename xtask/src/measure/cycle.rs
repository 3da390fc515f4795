//! Finds import cycles: sibling modules that use each other.
//!
//! The children of a module are compared, each with everything in it. A module and its children always use
//! each other and do not count.

use super::{Module, resolve::Names};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// The module in which the members are.
    pub(super) parent: String,
    pub(super) members: Vec<String>,
    /// How many files the members have.
    pub(super) files: usize,
}

/// For each child of a module, the children that it uses.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn find(modules: &[Module]) -> Vec<Cycle> {
    let names = Names::new(modules);
    let used: Vec<(&Module, BTreeSet<Vec<String>>)> =
        modules.iter().map(|module| (module, names.used_by(module))).collect();
    let mut parents: Vec<&Module> = modules.iter().collect();
    parents.sort_by_key(|module| &module.path);
    parents.dedup_by_key(|module| &module.path);
    parents.into_iter().flat_map(|parent| cycles_in(parent, &used)).collect()
}

fn cycles_in(parent: &Module, used: &[(&Module, BTreeSet<Vec<String>>)]) -> Vec<Cycle> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for (module, targets) in used {
        let Some(from) = child(&module.path, parent) else { continue };
        *files.entry(from.clone()).or_default() += 1;
        edges.entry(from).or_default().extend(targets.iter().filter_map(|target| child(target, parent)));
    }
    let graph: Graph<'_> =
        edges.iter().map(|(from, to)| (from.as_str(), to.iter().map(String::as_str).collect())).collect();
    let mut cycles = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for &start in graph.keys() {
        let reached = reachable(&graph, start);
        let members: BTreeSet<&str> =
            reached.into_iter().filter(|it| *it != start && reachable(&graph, it).contains(start)).collect();
        if members.is_empty() || !done.insert(start) {
            continue;
        }
        done.extend(&members);
        // Names are visited in order, so `start` is the first of its cycle.
        let members: Vec<String> = [start].into_iter().chain(members).map(ToOwned::to_owned).collect();
        let files = members.iter().filter_map(|it| files.get(it)).sum();
        cycles.push(Cycle { parent: parent.name(), members, files });
    }
    cycles
}

/// Returns the child of this module that has the path.
fn child(path: &[String], parent: &Module) -> Option<String> {
    path.strip_prefix(parent.path.as_slice())?.first().cloned()
}

/// Returns everything that can be reached from `start` in one or more steps.
fn reachable<'a>(graph: &Graph<'a>, start: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        open.extend(graph.get(at).into_iter().flatten().filter(|next| reached.insert(**next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Cycle, find};
    use crate::measure::tests::modules;

    #[test]
    fn a_cycle_has_all_who_need_one_another() {
        let found = find(&modules(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "mod inner; mod other;"),
            ("a/inner.rs", "use crate::b::x; use super::other;"),
            ("a/other.rs", "use super::inner::y; use super::Own;"),
            ("b.rs", "fn x() { crate::c::z() }"),
            ("c.rs", "use crate::a; use crate::d;"),
            ("d.rs", "//! Uses none of them."),
        ]));
        let cycle = |parent: &str, members: &[&str], files| Cycle {
            parent: parent.to_owned(),
            members: members.iter().map(|it| (*it).to_owned()).collect(),
            files,
        };
        assert_eq!(found, [cycle("crate", &["a", "b", "c"], 5), cycle("a", &["inner", "other"], 2)]);
    }
}
