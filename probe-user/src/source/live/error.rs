//! Why the hooks cannot be attached: one line for each case, with the remedy.

use std::io;

use caps::Capability;

use super::btf::{BTF, BtfError};
use crate::{
    model::fact::{Mechanism, Signal},
    source::node::missing_right::{MissingRight, Privileges},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this process may not load eBPF programs; {cure}")]
    NotPermitted { cure: String },
    /// Kernels before 5.11 count maps as locked memory.
    #[error("the kernel refuses the memory of the eBPF maps ({source}); {cure}")]
    Memory { source: Box<aya::EbpfError>, cure: String },
    #[error(
        "this kernel has no type information ({}): run one built with CONFIG_DEBUG_INFO_BTF=y, as distributions' \
         kernels since about 2021 are",
        BTF
    )]
    NoBtf,
    #[error("cannot read {path}: {source}", path = BTF)]
    UnreadableBtf { source: io::Error },
    #[error("cannot use {path}: {source}", path = BTF)]
    BadBtf { source: BtfError },
    #[error(
        "this kernel's type information lacks {0}, which the hooks read: it is older than 5.10 or newer than this program"
    )]
    Members(String),
    #[error(
        "kernel lockdown is set to confidentiality, which forbids reading kernel memory: boot with lockdown=integrity, \
         or without lockdown"
    )]
    Lockdown,
    #[error(
        "cannot tell which namespaces are the host's from {path}: {why}; give the host's pid namespace (hostPID) or --host-root"
    )]
    Namespaces { path: &'static str, why: String },
    #[error(
        "the boot time of this time namespace is {offset} s off the kernel's, which the hooks use: start sandprobe outside, as \
         with nsenter -t 1 -T; in a container, without timeOffsets"
    )]
    TimeNamespace { offset: String },
    #[error("cannot tell how many CPUs this machine can have from {path}: {source}")]
    Cpus { path: &'static str, source: io::Error },
    /// The object was built wrongly, or the kernel refuses its maps.
    #[error("cannot load the eBPF object: {0}")]
    Object(#[source] aya::EbpfError),
    #[error("the eBPF object has no {0}: it was not built with this program")]
    Foreign(&'static str),
    #[error("cannot use the map {name}: {source}")]
    Map { name: &'static str, source: aya::maps::MapError },
    #[error("cannot map the ring {name}: {source}")]
    Ring { name: &'static str, source: io::Error },
    #[error("cannot take over the program {program}: {source}")]
    TakenOver { program: &'static str, source: aya::programs::ProgramError },
    #[error("cannot ask the kernel how many runs of the program {program} it skipped: {source}")]
    Uncounted { program: String, source: io::Error },
    #[error(
        "the kernel does not count runs of programs: {0}; it takes root, or CAP_SYS_ADMIN: leave out --bpf-stats"
    )]
    Stats(#[source] aya::sys::SyscallError),
    #[error("cannot attach a hook for {}, which sandprobe needs: {why}", signal.into_str())]
    Core { signal: Signal, why: String },
}

impl Error {
    pub(super) fn object(error: aya::EbpfError) -> Self {
        let here = Privileges::find();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut is_forbidden = false;
        while let Some(one) = cause {
            let io = one.downcast_ref::<io::Error>();
            is_forbidden |= io.is_some_and(|it| it.kind() == io::ErrorKind::PermissionDenied);
            cause = one.source();
        }
        if is_forbidden && !here.holds(Capability::CAP_SYS_RESOURCE) {
            return Self::Memory { source: Box::new(error), cure: here.refusal(MissingRight::Memory) };
        }
        Self::Object(error)
    }

    /// Makes the error for a required hook. `missed`: the mechanisms that were tried, and why each failed.
    pub(super) fn core(signal: Signal, missed: &[(Mechanism, String)]) -> Self {
        let why: Vec<String> =
            missed.iter().map(|(mechanism, why)| format!("{}: {why}", mechanism.into_str())).collect();
        Self::Core { signal, why: why.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Mechanism, Signal};

    #[test]
    fn a_hook_is_called_as_everywhere_else() {
        let missed =
            [(Mechanism::Fexit, "not there".to_owned()), (Mechanism::RawTracepoint, "no".to_owned())];
        assert_eq!(
            Error::core(Signal::NetnsCreated, &missed).to_string(),
            "cannot attach a hook for netns created, which sandprobe needs: fexit: not there; raw tracepoint: no"
        );
    }
}
