//! Which system calls the calling thread can make, by seccomp(2).
//!
//! Three filters, of which the strictest answer counts. What the agent never does and an intruder would do ends the
//! process. What a role has no use for fails, and that is told ([`super::refusal`]): to end for it would blind a node for
//! what may be a library's new way to do an old thing. Calls that have an older way beside them are not there (`ENOSYS`),
//! as on an older kernel: their flags are in memory, where a filter cannot look.

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

/// No thread makes a call from here on that none is to make.
pub(super) fn begin() -> Result<State, ConfineError> {
    match install(&[&list::NEVER], SeccompAction::KillProcess, SeccompAction::Allow) {
        Ok(()) => Ok(State::Full),
        Err(seccompiler::Error::Seccomp(why)) if is_missing(&why) => {
            Ok(State::Absent("this kernel has no seccomp filters".to_owned()))
        }
        Err(why) => Err(error(&why)),
    }
}

/// The calling thread makes from here on the calls of its role.
pub(super) fn enter(role: Role, removes: bool) -> Result<(), ConfineError> {
    let hidden = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let mut groups = list::of(role).to_vec();
    // Of two filters a trap goes before an error, so the second lets through what the first hides.
    groups.push(&list::HIDDEN);
    groups.extend(removes.then_some(&list::REMOVE));
    install(&[&list::HIDDEN], hidden, SeccompAction::Allow)
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
        // Without a rule it matches whatever is given.
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
