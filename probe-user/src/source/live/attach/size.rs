//! Checks how many instructions each program of the object has, with the functions that it calls. The number
//! depends only on the source and the compiler, so the test finds a program that grows on any machine.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    object,
    stack::{Functions, Start, functions},
};
use crate::source::live::plan::HOOKS;

/// The numbers when they were last changed on purpose.
const HELD: [(&str, usize); 28] = [
    ("cgroup_attach", 1273),
    ("cgroup_emptied", 1152),
    ("cgroup_mkdir", 1246),
    ("cgroup_release", 1148),
    ("cgroup_rmdir", 1247),
    ("exec", 4328),
    ("exit", 1987),
    ("fe_free_inum", 365),
    ("fe_ifa6_notify", 1658),
    ("fe_netns_put", 470),
    ("fe_put_net", 459),
    ("fe_rtmsg_ifa", 1654),
    ("fx_copy_net_ns", 1272),
    ("kp_free_inum", 365),
    ("kp_ifa6_notify", 1651),
    ("kp_netns_put", 470),
    ("kp_put_net", 459),
    ("kp_rtmsg_ifa", 1648),
    ("kr_copy_net_ns", 1288),
    ("listen", 1167),
    ("netns_exit", 156),
    ("netns_fork", 1699),
    ("netns_unshare", 1666),
    ("netns_unsharing", 56),
    ("netns_work", 575),
    ("netns_worked", 702),
    ("oom", 1396),
    ("signal", 1887),
];
/// Returns the allowed difference: another version of the linker's LLVM changes at most 3 percent, or a few
/// instructions.
const fn margin(held: usize) -> usize {
    held * 3 / 100 + 4
}

/// Counts the instructions of a function and of all that it calls, each once.
fn instructions(functions: &Functions, start: Start) -> usize {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(start) = waiting.pop() {
        if reached.insert(start) {
            waiting.extend(&functions[&start].calls);
        }
    }
    reached.iter().map(|start| functions[start].instructions).sum()
}

#[test]
fn each_program_has_as_many_instructions_as_is_written_down() {
    let functions = functions(&object()).expect("the built-in object");
    let programs = HOOKS.iter().flat_map(|hook| hook.tries).flat_map(|one| one.programs);
    let counted: BTreeMap<&str, usize> = programs
        .map(|program| {
            let found = functions.iter().find(|(_, function)| function.name == program.name);
            let (start, _) = found.unwrap_or_else(|| panic!("no program {}", program.name));
            (program.name, instructions(&functions, *start))
        })
        .collect();
    let held = BTreeMap::from(HELD);
    assert!(
        counted.len() == held.len()
            && counted.iter().all(|(name, count)| {
                held.get(name).is_some_and(|held| count.abs_diff(*held) <= margin(*held))
            }),
        "the programs have other sizes than HELD says; if that is meant, write down {counted:?}"
    );
}
