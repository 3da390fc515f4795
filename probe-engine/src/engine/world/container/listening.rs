//! When a container first listened on a socket. From then on it can be reached. The start of its program does not show
//! that.
//!
//! **Invariant:** nothing is reported of a container that was found running: it may have listened before the agent
//! started.

use probe_common::event::KUBELET_PORTS;

use crate::{
    engine::{
        held::Wait,
        world::{
            EventContext, World,
            container::{Listening, State},
            daemon::is_kubelet,
            process_of,
        },
    },
    model::{
        change::ChangeKind,
        fact::{Listened, Role},
        recovery::WITHIN,
    },
};

impl World {
    pub(in crate::engine::world) fn listened(&mut self, ctx: EventContext, it: &Listened) {
        let is_kubelets = is_kubelet(&it.task.comm) && KUBELET_PORTS.contains(&it.socket.port);
        if it.container.id == 0 && is_kubelets {
            self.kubelet_listens(ctx.at, it.socket.port);
            self.restart_listens(ctx.at, it.task.key, it.socket.port);
        }
        let Some(id) = self.cgroups.own_container(it.container) else { return };
        let Some(row) = self.containers.rows.get_mut(&id) else { return };
        let State::Running { since, listed: false, .. } = row.state else { return };
        let in_time = ctx.at >= since && ctx.at.since(since) <= WITHIN;
        if row.run.listening.is_some() || row.role == Some(Role::Sandbox) || !in_time {
            return;
        }
        let listening = Listening { at: ctx.at, socket: it.socket };
        row.run.listening = Some(listening);
        let wait = if row.role.is_some() { Wait::Name } else { Wait::Role(Role::Container) };
        let what = ChangeKind::ContainerListening {
            process: process_of(&it.task),
            socket: it.socket,
            since_started: ctx.at.since(since),
        };
        self.tell(ctx, self.containers.subject_of(&id), wait, what);
        self.run_listens(&id, listening);
        if let Some(pod) = self.containers.get(&id).and_then(|row| row.pod) {
            self.ask_pressure(pod);
        }
    }
}
