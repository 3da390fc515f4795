//! What a process's name tells of it where no hook has told its class.

use probe_common::{
    event::class,
    name::{CALLERS, PAUSES, RUNTIMES},
    text::until_nul,
};

use crate::engine::world::argv;

/// The part of a class that the name makes, as a hook gives it to a process of root's outside of containers.
pub(super) fn class_of(comm: &str) -> u32 {
    let named = |names: &[[u8; 16]]| names.iter().any(|name| until_nul(name) == comm.as_bytes());
    let mut bits = 0;
    for (names, bit) in
        [(&CALLERS[..], class::CALLER), (&RUNTIMES[..], class::RUNTIME), (&PAUSES[..], class::PAUSE)]
    {
        if named(names) {
            bits |= bit;
        }
    }
    bits
}

/// Whether a program of this name makes the network namespaces of pods: a caller of CNI, a runtime, or runc's init.
pub(in crate::engine::world) fn makes_pods(comm: &str) -> bool {
    class_of(comm) & (class::CALLER | class::RUNTIME) != 0 || argv::is_init(comm, &[])
}
