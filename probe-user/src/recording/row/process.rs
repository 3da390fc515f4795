//! Processes and the signals on their way to them.

use crate::{
    engine::{id::ContainerId, world::process},
    recording::{
        change,
        id::{CgroupKey, TaskKey, Text, Time},
        mirror::mirror,
    },
};

mirror! {
    struct process::Process {
        key: TaskKey,
        parent: TaskKey,
        comm: String,
        filename: String,
        class: u32,
        cgroup: CgroupKey,
        netns: u32,
        ns_pid: u32,
        about: Option<Text<ContainerId>>,
        executed_at: Option<Time>,
        found_at: Option<Time>,
        quiet: bool,
        state: State,
    }
}

mirror! { enum process::State { Running, Exited { at: Time } } }

mirror! {
    struct process::Signal { target: TaskKey, at: Time, signal: u32, oom: bool, sender: change::Process }
}
