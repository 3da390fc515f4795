//! Chooses the containers that belong to a pod's start.
//!
//! The kubelet may keep on record which containers a pod will have. Then those containers belong to the
//! start, with the init containers before them. An ephemeral container (`kubectl debug`) is in no such
//! record.

use super::earlier;
use crate::engine::world::{
    World, lookup,
    table::sandbox::{ContainerRun, Sandbox},
};

pub(super) struct Members<'a> {
    /// The first run of each container name, in the order in which they began. Later runs of a name are
    /// restarts.
    pub(super) parts: Vec<&'a ContainerRun>,
    /// The pod's containers are known, and so is the name of each container that began.
    pub(super) known: bool,
    /// The known containers that have not begun.
    pub(super) missing: Vec<String>,
}

impl<'a> Members<'a> {
    pub(super) fn of(world: &World, row: &'a Sandbox) -> Self {
        let expected = lookup::start::expected_in(world, row);
        let firsts = firsts(row);
        let known = !expected.is_empty() && firsts.iter().all(|ran| ran.name.is_some());
        let missing: Vec<String> = expected
            .iter()
            .filter(|name| known && firsts.iter().all(|ran| ran.name.as_ref() != Some(name)))
            .cloned()
            .collect();
        let end = if known && missing.is_empty() {
            firsts.iter().filter(|ran| is_expected(expected, ran)).map(|ran| ran.started_at).max()
        } else {
            None
        };
        Self {
            parts: firsts
                .iter()
                .copied()
                .filter(|ran| {
                    is_expected(expected, ran)
                        || !ran.is_debugger() && end.is_none_or(|end| ran.started_at <= end)
                })
                .collect(),
            known,
            missing,
        }
    }
}

fn is_expected(expected: &[String], ran: &ContainerRun) -> bool {
    ran.name.as_ref().is_some_and(|name| expected.contains(name))
}

fn firsts(row: &Sandbox) -> Vec<&ContainerRun> {
    let mut all: Vec<&ContainerRun> = row.containers().iter().collect();
    all.sort_by(|one, other| earlier(one.started_at, &one.id, other.started_at, &other.id));
    let mut firsts: Vec<&ContainerRun> = Vec::new();
    for ran in all {
        if ran.name.is_none() || firsts.iter().all(|first| first.name != ran.name) {
            firsts.push(ran);
        }
    }
    firsts
}
