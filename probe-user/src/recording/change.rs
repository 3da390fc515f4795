//! What the engine says, as it stands in the file: changes that were held back, and questions.

use super::{
    fact::{Listener, Task},
    finding::Finding,
    id::{CgroupKey, Decimal, NetnsKey, Span, TaskKey, Text, Time},
    kind::Loss,
    mirror::mirror,
    phase::Start,
};
use crate::engine::{
    change,
    id::{ContainerId, PodUid, Subnet},
};

mirror! {
    enum change::What {
        ProcessExec { process: Process, filename: String, argv: Vec<String>, argv_cut: bool },
        ProcessExit { process: Process, end: End },
        CniStarted { call: CniCall },
        CniFinished { call: CniCall, end: Option<End>, duration: Span },
        NetnsCreated { by: Process },
        NetnsDestroyed { by: Option<Process> },
        NetnsFreed { teardown: Option<Span> },
        CgroupCreated { by: Process },
        CgroupEmptied,
        CgroupRemoved { by: Process },
        AddressAdded { address: Text<Subnet>, ifname: String },
        AddressRemoved { address: Text<Subnet>, ifname: String },
        SandboxCreated,
        SandboxReady { since_created: Span },
        SandboxStopped { why: StopReason },
        ContainerStarted { process: Process },
        ContainerListening { process: Process, socket: Listener, since_started: Span },
        ContainerExited { process: Process, end: End, ran: Option<Span> },
        PodFirstSeen,
        PodGone { lived: Span },
        PodStarted(it: Box<Start>),
        Gap { what: Loss, count: Decimal },
        FindingOpened(it: Box<Finding>),
        FindingConfirmed(it: Box<Finding>),
        FindingClosed(it: Box<Finding>),
    }
}

mirror! { struct change::ContainerRef { id: Text<ContainerId>, name: Option<String> } }

mirror! { struct change::CgroupRef { key: CgroupKey, path: String } }

mirror! { struct change::Process { key: TaskKey, parent: TaskKey, comm: String } }

mirror! {
    struct change::End { code: u32, signal: Option<u32>, killer: Option<Process>, oom: bool }
}

mirror! {
    struct change::CniCall {
        command: String,
        plugin: String,
        netns: Option<String>,
        ifname: Option<String>,
        process: Process,
        called_by: Option<String>,
        delegated: bool,
    }
}

mirror! {
    enum change::StopReason { PauseExited, Emptied, NetworkRemoved, NetnsGone, NotListed, RuntimeEnded }
}

mirror! {
    enum change::Question {
        Container { id: Text<ContainerId> },
        Pod { uid: Text<PodUid> },
        Watch { netns: NetnsKey, by: Task },
        Relist,
        Records,
        Expected { uid: Text<PodUid> },
        Program { path: String },
        Message { container: Text<ContainerId>, since: Time },
        Pressure { cgroup: CgroupKey, path: String },
    }
}
