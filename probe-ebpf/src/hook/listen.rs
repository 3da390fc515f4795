//! `inet_sock_set_state(sk, oldstate, newstate)`: a socket with TCP's states changes from one to another,
//! some ten times for each connection. Only the change to listening matters, which `listen(2)` makes
//! (`inet_csk_listen_start`): the current task is the one that called it.
//!
//! The kernel announces it before it takes the port. If that fails, there is no listener. After a successful
//! `bind(2)` it fails only if another socket begins to listen in between.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::event::{self, KUBELET_PORTS, kind};

use crate::{
    emit,
    kernel::{sock::Sock, task::Task},
    reader_page,
};

const TCP_LISTEN: i32 = 10;

#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
pub(crate) fn listen(ctx: RawTracePointContext) -> i32 {
    let state: i32 = ctx.arg(2);
    if state != TCP_LISTEN || reader_page::is_away() {
        return 0;
    }
    let task = Task::current();
    let container = task.cgroup().container();
    let sock = Sock::at(ctx.arg(0));
    let port = sock.port();
    let is_wanted = container.is_some() || is_kubelets(port) && task.is_root() == 1;
    if !is_wanted {
        return 0;
    }
    let record = event::Listen {
        header: emit::header::<event::Listen>(kind::LISTEN, 0),
        container: container.id(),
        port,
        family: sock.family(),
        _pad: [0; 5],
    };
    emit::fixed(emit::ring_for_container(container), kind::LISTEN, record);
    0
}

/// Whether the node's own sockets at this port matter: a kubelet may listen there.
#[inline(always)]
fn is_kubelets(port: u16) -> bool {
    let [health, api, read_only] = KUBELET_PORTS;
    port == health || port == api || port == read_only
}
