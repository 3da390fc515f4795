//! Drops capabilities of the calling thread, and prevents new ones.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

use super::{ConfineError, State};

/// Whether `works` is true on a thread without effective capabilities. The thread then gets its capabilities
/// back.
pub(super) fn without_any(works: impl Fn() -> bool) -> Result<bool, ConfineError> {
    let had = read(CapSet::Effective)?;
    set(CapSet::Effective, &CapsHashSet::new())?;
    let works = works();
    set(CapSet::Effective, &had)?;
    Ok(works)
}

/// Drops all capabilities of the calling thread but those in `needed`, and programs that it executes get
/// none.
pub(super) fn begin(needed: &CapsHashSet) -> Result<State, ConfineError> {
    // The kernel refuses this only if the arguments are wrong.
    prctl::set_no_new_privs().map_err(|why| ConfineError::new("rule out new privileges", why))?;
    caps::clear(None, CapSet::Ambient).map_err(|why| ConfineError::new("clear ambient capabilities", why))?;
    let bounding = bound();
    enter(needed)?;
    let missing: CapsHashSet = needed.difference(&read(CapSet::Permitted)?).copied().collect();
    Ok(match (bounding, missing.is_empty()) {
        (Ok(()), true) => State::Full,
        (bounding, _) => {
            let mut parts: Vec<String> = missing.iter().map(|it| format!("without {it}")).collect();
            parts.sort_unstable();
            parts.extend(bounding.err());
            State::Part(parts.join(", "))
        }
    })
}

/// Empties the bounding set, which limits the capabilities of executed programs.
fn bound() -> Result<(), String> {
    let held = caps::read(None, CapSet::Bounding).map_err(|why| why.to_string())?;
    if !held.is_empty() && !read(CapSet::Effective).is_ok_and(|it| it.contains(&Capability::CAP_SETPCAP)) {
        return Err("the bounding set stays, for lack of CAP_SETPCAP".to_owned());
    }
    held.into_iter().try_for_each(|it| caps::drop(None, CapSet::Bounding, it)).map_err(|why| why.to_string())
}

/// Drops all capabilities of the calling thread but those in `needed`.
pub(super) fn enter(needed: &CapsHashSet) -> Result<(), ConfineError> {
    let kept = read(CapSet::Permitted)?.intersection(needed).copied().collect();
    set(CapSet::Effective, &kept)?;
    set(CapSet::Inheritable, &CapsHashSet::new())?;
    set(CapSet::Permitted, &kept)
}

fn read(which: CapSet) -> Result<CapsHashSet, ConfineError> {
    caps::read(None, which).map_err(|why| ConfineError::new("read capabilities", why))
}

fn set(which: CapSet, to: &CapsHashSet) -> Result<(), ConfineError> {
    caps::set(None, which, to).map_err(|why| ConfineError::new("drop capabilities", why))
}
