//! Containers.

use crate::{
    engine::{
        id::ContainerId,
        world::{container, listening},
    },
    recording::{
        fact::Listener,
        id::{CgroupKey, Decimal, TaskKey, Text, Time},
        kind::{Origin, Role},
        mirror::mirror,
    },
};

mirror! {
    struct container::Container {
        id: Text<ContainerId>,
        role: Option<Role>,
        name: Option<String>,
        sandbox: Option<Text<ContainerId>>,
        pod: Option<Decimal>,
        cgroup: Option<CgroupKey>,
        first_at: Time,
        origin: Origin,
        asked: u32,
        open: bool,
        tentative: bool,
        began: Option<Began>,
        listening: Option<Listening>,
        #[serde(default)]
        hook: Option<Hook>,
        code: Option<u32>,
        #[serde(default)]
        stopped_at: Option<Time>,
        dated: Option<Time>,
        state: State,
    }
}

mirror! { struct container::Hook { process: TaskKey, ended_at: Option<Time> } }

mirror! { struct container::Began { at: Time, listed: bool } }

mirror! {
    struct listening::Listening { at: Time, socket: Listener }
}

mirror! {
    enum container::State {
        Created,
        Running { process: TaskKey, since: Time, listed: bool },
        Exited { at: Time },
    }
}
