//! The roles of threads, and the rights that each keeps.

use caps::Capability;

/// A kind of thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Asks rtnetlink about other network namespaces, which it finds in `/proc`.
    Netlink,
    /// Reads the node's files, other processes' `/proc` among them, and asks runtimes over their sockets.
    Files,
    /// Writes findings and the history of boots to the state directory.
    Store,
    /// Writes the stream to a log file, and begins a new one when it is full.
    Log,
    /// Writes to open files: the stream, the recording.
    Writer,
    /// Sends traces and log records to a receiver on the network.
    Export,
    /// Writes to the API server of the cluster, and asks it whose an address is.
    Kubernetes,
    /// The main thread: reads the rings and counters, and runs the engine.
    Agent,
    /// Answers clients on open sockets.
    Server,
}

impl Role {
    pub const ALL: [Self; 9] = [
        Self::Netlink,
        Self::Files,
        Self::Store,
        Self::Log,
        Self::Writer,
        Self::Export,
        Self::Kubernetes,
        Self::Agent,
        Self::Server,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Netlink => "netlink",
            Self::Files => "files",
            Self::Store => "store",
            Self::Log => "log",
            Self::Writer => "writer",
            Self::Export => "export",
            Self::Kubernetes => "kubernetes",
            Self::Agent => "agent",
            Self::Server => "server",
        }
    }

    /// * `CAP_SYS_PTRACE`: `environ`, `exe` and `ns` of processes that are not ours (`ptrace_may_access`).
    /// * `CAP_DAC_READ_SEARCH`: files and folders that only their owner may read, where that is not root.
    /// * `CAP_NET_ADMIN`: giving a namespace an id (`rtnetlink_rcv_msg`), and asking about the addresses in
    ///   one (`rtnl_get_net_ns_capable`).
    #[must_use]
    pub(crate) fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Netlink => {
                &[Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_NET_ADMIN]
            }
            Self::Files => &[Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH],
            Self::Store
            | Self::Log
            | Self::Writer
            | Self::Export
            | Self::Kubernetes
            | Self::Agent
            | Self::Server => &[],
        }
    }
}
