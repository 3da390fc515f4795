//! Observations and facts, as they stand in the file.

pub(super) mod ledger;
pub(super) mod pressure;

use ledger::{MessageFound, NetworksRead, ProgramFound, RuntimeRead, StoreRead};
use pressure::PressureRead;

use super::{
    boot::BootRead,
    id::{CgroupKey, Clock, Decimal, NetnsKey, Span, TaskKey, Text, Time},
    kind::{Family, List, Loss, Mechanism, NameSource, Origin, Role, Signal},
    mirror::mirror,
    row::Row,
};
use crate::engine::{
    fact,
    id::{ContainerId, PodUid, Subnet},
};

mirror! { struct fact::Observation { at: Clock, origin: Origin, fact: Fact } }

mirror! {
    enum fact::Fact {
        Executed(it: Executed),
        CniCalled(it: CniCalled),
        Exited(it: Exited),
        Signaled(it: Signaled),
        OomKilled(it: Signaled),
        NetnsCreated {
            netns: NetnsKey,
            by: Task,
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            end_unseen: bool,
        },
        NetnsDropped { netns: NetnsKey, by: Task },
        NetnsFreed { netns: NetnsKey },
        AddressAdded(it: Address),
        AddressRemoved(it: Address),
        CgroupCreated { cgroup: Cgroup, by: Task },
        CgroupRemoved { cgroup: Cgroup, by: Task },
        CgroupReleased { cgroup: Cgroup },
        CgroupEntered { cgroup: Cgroup, member: TaskKey, by: Task },
        CgroupEmptied { cgroup: Cgroup },
        Listened(it: Listened),
        ListBegun(it: List),
        ListEnded { list: List, complete: bool },
        ProcessFound(it: ProcessFound),
        NetnsFound { netns: NetnsKey, mounts: Vec<String>, vacant: bool },
        AddressFound(it: Address),
        CgroupFound { cgroup: Cgroup, populated: bool },
        ContainerFound(it: ContainerFound),
        ContainerUnknown(it: Text<ContainerId>),
        PodFound { uid: Text<PodUid>, namespace: String, name: String, source: NameSource },
        ContainersExpected { uid: Text<PodUid>, names: Vec<String> },
        CacheFound(it: CacheFound),
        CacheUnread { path: String },
        StoreRead(it: StoreRead),
        RuntimeRead(it: RuntimeRead),
        NetworksRead(it: NetworksRead),
        KubeletExpected(it: bool),
        ProgramFound(it: ProgramFound),
        MessageFound(it: MessageFound),
        PressureRead(it: PressureRead),
        Watermark,
        BootRead(it: Box<BootRead>),
        Attached(it: Attached),
        Lost { what: Loss, count: Decimal },
        FileHangs { path: String, since: Time, hangs: bool },
        Clock { boot_wall_ns: Text<i64> },
        Resumed { slept: Span },
        Remembered(it: Row),
    }
}

mirror! {
    struct fact::Task {
        key: TaskKey,
        tid: u32,
        parent: TaskKey,
        comm: String,
        cgroup: CgroupKey,
        netns: u32,
    }
}

mirror! {
    struct fact::Executed {
        task: Task,
        filename: String,
        argv: Vec<String>,
        argv_total: u32,
        class: u32,
        ns_pid: u32,
        pid_ns: u32,
        mnt_ns: u32,
    }
}

mirror! {
    struct fact::CniCalled {
        task: Task,
        filename: String,
        caller: Option<Caller>,
        host: bool,
        variables: CniVariables,
        env_truncated: bool,
    }
}

mirror! { struct fact::Caller { key: TaskKey, comm: String } }

mirror! {
    struct fact::CniVariables {
        command: String,
        container_id: Option<String>,
        netns: Option<String>,
        ifname: Option<String>,
        args: Option<String>,
        path: Option<String>,
    }
}

mirror! { struct fact::Exited { task: Task, status: u32, class: u32 } }

mirror! { struct fact::Signaled { target: Task, signal: u32, code: i32, sender: Task } }

mirror! {
    struct fact::Address {
        netns: NetnsKey,
        address: Text<Subnet>,
        ifname: String,
        ifindex: u32,
        flags: u32,
        scope: u8,
        by: Task,
    }
}

mirror! { struct fact::Cgroup { key: CgroupKey, path: String, level: u32, nested: bool } }

mirror! { struct fact::Listened { task: Task, container: CgroupKey, socket: Listener } }

mirror! { struct fact::Listener { port: u16, family: Family } }

mirror! {
    struct fact::ProcessFound {
        task: Task,
        argv: Vec<String>,
        cgroup_path: String,
        ns_pid: u32,
        cni: Option<CniVariables>,
        filename: String,
    }
}

mirror! {
    struct fact::ContainerFound {
        id: Text<ContainerId>,
        role: Role,
        sandbox: Option<Text<ContainerId>>,
        name: Option<String>,
        pod: Option<PodName>,
        source: NameSource,
        started: Option<Time>,
    }
}

mirror! {
    struct fact::PodName { namespace: Option<String>, name: Option<String>, uid: Option<Text<PodUid>> }
}

mirror! {
    struct fact::CacheFound {
        network: String,
        container: Text<ContainerId>,
        ifname: String,
        addresses: Vec<Text<Subnet>>,
        netns: Option<String>,
        args: Vec<(String, String)>,
    }
}

mirror! {
    struct fact::Attached {
        signal: Signal,
        mechanism: Option<Mechanism>,
        note: String,
        missed: Vec<(Mechanism, String)>,
    }
}
