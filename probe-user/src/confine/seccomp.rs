//! Limits the system calls of the calling thread, by seccomp(2).
//!
//! There are three filters, and the strictest result counts. A call that the agent never makes and an
//! intruder would make ends the process. A call that a role does not need fails and is reported
//! ([`super::refusal`]); it does not end the process, because it may only be a library's new way to do
//! something old. A call that has an older equivalent fails with `ENOSYS`, as on an older kernel, because its
//! flags are in memory, where a filter cannot look.

mod call;
mod list;

use std::{collections::BTreeMap, io};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use self::list::Group;
use super::{ConfineError, State, role::Role};

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// From now on no thread can make the calls that no role needs.
pub(super) fn begin() -> Result<State, ConfineError> {
    match install(&[&list::KILL], SeccompAction::KillProcess, SeccompAction::Allow) {
        Ok(()) => Ok(State::Full),
        Err(seccompiler::Error::Seccomp(why)) if is_missing(&why) => {
            Ok(State::Absent("this kernel has no seccomp filters".to_owned()))
        }
        Err(why) => Err(error(&why)),
    }
}

/// What a thread needs in addition to the calls of its role.
pub(super) struct More {
    /// It removes the socket at the end.
    pub(super) removes: bool,
    /// It listens on a port later.
    pub(super) opens: bool,
    /// It takes the socket's path later.
    pub(super) takes: bool,
}

/// From now on the calling thread can make only the calls of its role.
pub(super) fn enter(role: Role, more: &More) -> Result<(), ConfineError> {
    let hidden = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let mut groups = list::of(role).to_vec();
    // A trap of one filter wins over an error of the other, so the second filter allows what the first one
    // hides.
    groups.push(&list::ENOSYS);
    let mut absent = vec![&list::ENOSYS];
    absent.extend(matches!(role, Role::Export | Role::Kubernetes).then_some(&list::NO_LOCAL));
    let more = [(more.removes, &list::REMOVE), (more.opens, &list::OPEN), (more.takes, &list::TAKE)];
    groups.extend(more.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, group)| group));
    install(&absent, hidden, SeccompAction::Allow)
        .and_then(|()| install(&groups, SeccompAction::Allow, SeccompAction::Trap))
        .map_err(|why| error(&why))
}

fn install(
    groups: &[&Group],
    matched: SeccompAction,
    other: SeccompAction,
) -> Result<(), seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in groups.iter().flat_map(|group| group.calls.iter().copied().flatten()) {
        // A call without rules matches with any arguments.
        rules.insert(call.number, call.rules()?);
    }
    let program: BpfProgram = SeccompFilter::new(rules, other, matched, ARCH)?.try_into()?;
    seccompiler::apply_filter(&program)
}

fn is_missing(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

fn error(why: &seccompiler::Error) -> ConfineError {
    ConfineError::new("confine to system calls", why)
}
