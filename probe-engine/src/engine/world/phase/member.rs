//! Which containers belong to a pod's start.
//!
//! Where the kubelet keeps on record which containers a pod is to have, these are it, and the init containers before
//! them. An ephemeral container (`kubectl debug`) is in no such record.

use super::earlier;
use crate::engine::world::{
    World,
    attempt::{Attempt, ContainerRun},
};

pub(super) struct Members<'a> {
    /// In the order in which they began: of each name the first, for the others are restarts.
    pub(super) parts: Vec<&'a ContainerRun>,
    /// It is known which containers the pod is to have, and which each of these is.
    pub(super) known: bool,
    /// Those that have not begun, as far as that is known.
    pub(super) missing: Vec<String>,
}

impl<'a> Members<'a> {
    pub(super) fn of(world: &World, row: &'a Attempt) -> Self {
        let expected = world.expected_in(row);
        let firsts = firsts(row);
        let known = !expected.is_empty() && firsts.iter().all(|ran| ran.name.is_some());
        let is_expected = |ran: &&ContainerRun| ran.name.as_ref().is_some_and(|name| expected.contains(name));
        let began = |name: &&String| firsts.iter().any(|ran| ran.name.as_ref() == Some(name));
        let missing: Vec<String> = expected.iter().filter(|name| known && !began(name)).cloned().collect();
        let is_all = known && missing.is_empty();
        let end = firsts.iter().filter(|ran| is_expected(ran)).map(|ran| ran.started_at).max();
        let end = end.filter(|_| is_all);
        let belongs = |ran: &&ContainerRun| {
            let is_debugger = ran.name.as_deref().is_some_and(is_debugger);
            is_expected(ran) || !is_debugger && end.is_none_or(|end| ran.started_at <= end)
        };
        Self { parts: firsts.iter().copied().filter(belongs).collect(), known, missing }
    }
}

fn firsts(row: &Attempt) -> Vec<&ContainerRun> {
    let mut all: Vec<&ContainerRun> = row.containers.iter().collect();
    all.sort_by(|one, other| earlier(one.started_at, &one.id, other.started_at, &other.id));
    let mut firsts: Vec<&ContainerRun> = Vec::new();
    for ran in all {
        if ran.name.is_none() || firsts.iter().all(|first| first.name != ran.name) {
            firsts.push(ran);
        }
    }
    firsts
}

/// The name that `kubectl debug` gives an ephemeral container unless it is told another one: `debugger-` and five letters
/// of those that Kubernetes makes names of.
pub(super) fn is_debugger(name: &str) -> bool {
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    name.strip_prefix("debugger-")
        .is_some_and(|rest| rest.len() == 5 && rest.chars().all(|letter| LETTERS.contains(letter)))
}

#[cfg(test)]
mod tests {
    use super::is_debugger;

    #[test]
    fn what_kubectl_debug_makes_is_known_by_its_name() {
        assert!(is_debugger("debugger-x7k2p"));
        for name in
            ["debugger", "debugger-", "debugger-abcde", "debugger-x7k2p4", "main", "my-debugger-x7k2p"]
        {
            assert!(!is_debugger(name), "{name}");
        }
    }
}
