//! The class of a process by its name, where no hook has reported its class.

use probe_common::{
    event::class,
    name::{CALLERS, PAUSES, RUNTIMES},
    text::until_nul,
};

use crate::engine::world::argv;

/// The part of a class that the name makes, as a hook gives it to a process of root's outside of containers.
pub(crate) fn class_of(comm: &str) -> u32 {
    let mut bits = 0;
    for (names, bit) in
        [(&CALLERS[..], class::CALLER), (&RUNTIMES[..], class::RUNTIME), (&PAUSES[..], class::PAUSE)]
    {
        if names.iter().any(|name| until_nul(name) == comm.as_bytes()) {
            bits |= bit;
        }
    }
    bits
}

/// Whether a program of this name makes the network namespaces of pods: a caller of CNI, a runtime, or runc's
/// init.
pub(crate) fn makes_pods(comm: &str) -> bool {
    class_of(comm) & (class::CALLER | class::RUNTIME) != 0 || argv::is_init(comm, &[])
}
