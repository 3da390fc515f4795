//! The observations about the processes in a container.

use probe_user::model::fact::{Fact, Observation, Task};
pub(crate) use tests::guard::container::{Container, actor, new_id};

/// Returns the observations about a process, in order.
pub(crate) fn of_process(seen: &[Observation], pid: u32) -> Vec<&Observation> {
    let mut found: Vec<_> =
        seen.iter().filter(|one| subject(&one.fact).is_some_and(|task| task.key.pid == pid)).collect();
    found.sort_by_key(|one| one.at);
    found
}

/// Returns the process that a fact is about.
fn subject(fact: &Fact) -> Option<&Task> {
    match fact {
        Fact::Executed(one) => Some(&one.task),
        Fact::CniCalled(one) => Some(&one.task),
        Fact::Exited(one) => Some(&one.task),
        Fact::Signaled(one) | Fact::OomKilled(one) => Some(&one.target),
        _ => None,
    }
}

/// Whether the exit of a process is reported.
pub(crate) fn has_exited(seen: &[Observation], pid: u32) -> Option<()> {
    of_process(seen, pid).iter().any(|one| matches!(one.fact, Fact::Exited(_))).then_some(())
}
