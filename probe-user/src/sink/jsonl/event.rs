//! A change as the members of an object.

use std::{fmt::Display, time::Duration};

use serde::{Serialize, Serializer};

use super::{SCHEMA, finding::Finding, start::Start};
use crate::{
    model::{
        change::{self, Change, ChangeKind, CniCall, End, PodRef},
        fact::Listener,
        id::{CgroupKey, NetnsKey, TaskKey},
    },
    sink::{Label, wall::Rfc3339},
};

#[derive(Serialize)]
pub(super) struct Event<'a> {
    schema: u32,
    node: &'a str,
    boot_id: &'a str,
    /// 0: it was not told in a stream.
    #[serde(skip_serializing_if = "is_zero")]
    seq: u64,
    at: Text<Rfc3339>,
    boot_ns: Text<u64>,
    event: &'static str,
    origin: &'static str,
    #[serde(skip_serializing_if = "no")]
    late: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Pod<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<Sandbox<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Container<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<Netns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<Cgroup<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<Process<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cni: Option<Cni<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Address<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listening: Option<Listening>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<Gap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Start<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finding: Option<Finding<'a>>,
}

/// What is a string in JSON.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

#[derive(Default, Serialize)]
struct Pod<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lived_ns: Option<Text<u128>>,
}

#[derive(Default, Serialize)]
struct Sandbox<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_after_ns: Option<Text<u128>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct Container<'a> {
    pub(super) id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
}

#[derive(Default, Serialize)]
pub(super) struct Netns {
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<Text<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    teardown_ns: Option<Text<u128>>,
}

#[derive(Serialize)]
struct Cgroup<'a> {
    id: Text<u64>,
    hierarchy: u32,
    path: &'a str,
}

#[derive(Default, Serialize)]
pub(super) struct Process<'a> {
    #[serde(flatten)]
    task: Task,
    comm: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Task>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<&'a [String]>,
    #[serde(skip_serializing_if = "no")]
    argv_cut: bool,
    #[serde(flatten)]
    end: Option<Ended<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_ns: Option<Text<u128>>,
}

#[derive(Default, Serialize)]
struct Task {
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ns: Option<Text<u64>>,
}

#[derive(Serialize)]
struct Ended<'a> {
    exit_code: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u32>,
    #[serde(skip_serializing_if = "no")]
    oom: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    killer: Option<Killer<'a>>,
}

#[derive(Serialize)]
struct Killer<'a> {
    #[serde(flatten)]
    task: Task,
    comm: &'a str,
}

#[derive(Serialize)]
struct Cni<'a> {
    command: &'a str,
    plugin: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ifname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    called_by: Option<&'a str>,
    #[serde(skip_serializing_if = "no")]
    delegated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ns: Option<Text<u128>>,
}

#[derive(Serialize)]
struct Address<'a> {
    address: Text<std::net::IpAddr>,
    prefix: u8,
    ifname: &'a str,
}

#[derive(Serialize)]
pub(super) struct Socket {
    /// 0: the kernel chose one.
    #[serde(skip_serializing_if = "is_none")]
    port: u16,
    family: &'static str,
}

#[derive(Serialize)]
struct Listening {
    #[serde(flatten)]
    socket: Socket,
    after_ns: Text<u128>,
}

#[derive(Serialize)]
struct Gap {
    what: &'static str,
    count: Text<u64>,
}

impl<'a> Event<'a> {
    pub(super) fn of(change: &'a Change, label: &'a Label) -> Self {
        let context = &change.context;
        let mut event = Self {
            schema: SCHEMA,
            node: &label.node,
            boot_id: &label.boot_id,
            seq: change.seq,
            at: Text(Rfc3339(label.wall_ns(change.at))),
            boot_ns: Text(change.at.0),
            event: change.what.into_str(),
            origin: change.origin.into_str(),
            late: change.late,
            pod: context.pod.as_ref().map(Pod::of),
            sandbox: context
                .sandbox
                .as_ref()
                .map(|id| Sandbox { id: Some(id.as_str()), ..Sandbox::default() }),
            container: context
                .container
                .as_ref()
                .map(|of| Container { id: of.id.as_str(), name: of.name.as_deref() }),
            netns: context.netns.map(Netns::of),
            cgroup: context.cgroup.as_ref().map(Cgroup::of),
            process: None,
            cni: None,
            address: None,
            listening: None,
            gap: None,
            start: None,
            finding: None,
        };
        event.fill(&change.what, label);
        event
    }

    /// The members that only this kind of event has.
    fn fill(&mut self, what: &'a ChangeKind, label: &Label) {
        match what {
            ChangeKind::ProcessExec { process, filename, argv, argv_cut } => {
                self.process = Some(Process {
                    filename: Some(filename),
                    argv: Some(argv),
                    argv_cut: *argv_cut,
                    ..Process::of(process)
                });
            }
            ChangeKind::ProcessExit { process, end } => {
                self.process = Some(Process::ended(process, end, None))
            }
            ChangeKind::ContainerExited { process, end, ran } => {
                self.process = Some(Process::ended(process, end, *ran));
            }
            ChangeKind::CniStarted { call } => self.cni(call, None, None),
            ChangeKind::CniFinished { call, end, duration } => self.cni(call, end.as_ref(), Some(*duration)),
            ChangeKind::NetnsCreated { by: process }
            | ChangeKind::CgroupCreated { by: process }
            | ChangeKind::CgroupRemoved { by: process }
            | ChangeKind::ContainerStarted { process } => self.process = Some(Process::of(process)),
            ChangeKind::ContainerListening { process, socket, since_started } => {
                self.process = Some(Process::of(process));
                let (socket, after_ns) = (Socket::of(*socket), nanos(*since_started));
                self.listening = Some(Listening { socket, after_ns });
            }
            ChangeKind::NetnsDestroyed { by } => self.process = by.as_ref().map(Process::of),
            ChangeKind::NetnsFreed { teardown } => {
                if let Some(teardown) = teardown {
                    self.netns.get_or_insert_default().teardown_ns = Some(nanos(*teardown));
                }
            }
            ChangeKind::AddressAdded { address, ifname } | ChangeKind::AddressRemoved { address, ifname } => {
                self.address =
                    Some(Address { address: Text(address.address), prefix: address.prefix, ifname });
            }
            ChangeKind::SandboxReady { since_created } => {
                self.sandbox.get_or_insert_default().ready_after_ns = Some(nanos(*since_created));
            }
            ChangeKind::SandboxStopped { why } => {
                self.sandbox.get_or_insert_default().reason = Some(why.into_str());
            }
            ChangeKind::PodStarted(start) => self.start = Some(Start::of(start)),
            ChangeKind::PodGone { lived } => self.pod.get_or_insert_default().lived_ns = Some(nanos(*lived)),
            ChangeKind::Gap { what, count } => {
                self.gap = Some(Gap { what: what.into_str(), count: Text(*count) });
            }
            ChangeKind::FindingOpened(it)
            | ChangeKind::FindingConfirmed(it)
            | ChangeKind::FindingClosed(it) => {
                self.finding = Some(Finding::of(it, label));
            }
            ChangeKind::CgroupEmptied | ChangeKind::SandboxCreated | ChangeKind::PodFirstSeen => {}
        }
    }

    fn cni(&mut self, call: &'a CniCall, end: Option<&'a End>, duration: Option<Duration>) {
        let CniCall { command, plugin, netns, ifname, process, called_by, delegated } = call;
        self.cni = Some(Cni {
            command,
            plugin,
            netns: netns.as_deref(),
            ifname: ifname.as_deref(),
            called_by: called_by.as_deref(),
            delegated: *delegated,
            exit_code: end.map(|end| end.code),
            duration_ns: duration.map(nanos),
        });
        self.process = Some(Process { end: end.map(Ended::of), ..Process::of(process) });
    }
}

impl<'a> Pod<'a> {
    fn of(pod: &'a PodRef) -> Self {
        Self {
            namespace: pod.namespace.as_deref(),
            name: pod.name.as_deref(),
            uid: pod.uid.as_ref().map(|uid| uid.as_str()),
            source: pod.source.map(|it| it.into_str()),
            lived_ns: None,
        }
    }
}

impl Netns {
    pub(super) fn of(key: NetnsKey) -> Self {
        Self { inode: Some(key.inode), cookie: known(key.cookie), teardown_ns: None }
    }
}

impl<'a> Cgroup<'a> {
    fn of(cgroup: &'a change::CgroupRef) -> Self {
        let CgroupKey { id, hierarchy, .. } = cgroup.key;
        Self { id: Text(id), hierarchy, path: &cgroup.path }
    }
}

impl<'a> Process<'a> {
    pub(super) fn of(process: &'a change::Process) -> Self {
        let parent = (process.parent != TaskKey::default()).then(|| Task::of(process.parent));
        Self { task: Task::of(process.key), comm: &process.comm, parent, ..Self::default() }
    }

    fn ended(process: &'a change::Process, end: &'a End, ran: Option<Duration>) -> Self {
        Self { end: Some(Ended::of(end)), ran_ns: ran.map(nanos), ..Self::of(process) }
    }
}

impl Socket {
    pub(super) fn of(socket: Listener) -> Self {
        Self { port: socket.port, family: socket.family.into_str() }
    }
}

impl Task {
    fn of(key: TaskKey) -> Self {
        Self { pid: key.pid, start_ns: known(key.start) }
    }
}

impl<'a> Ended<'a> {
    fn of(end: &'a End) -> Self {
        Self {
            exit_code: end.code,
            signal: end.signal,
            oom: end.oom,
            killer: end.killer.as_ref().map(|by| Killer { task: Task::of(by.key), comm: &by.comm }),
        }
    }
}

pub(super) fn nanos(span: Duration) -> Text<u128> {
    Text(span.as_nanos())
}

/// A number for which 0 stands for "not given".
fn known(number: u64) -> Option<Text<u64>> {
    (number != 0).then_some(Text(number))
}

fn is_none(port: &u16) -> bool {
    *port == 0
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn no(flag: &bool) -> bool {
    !flag
}
