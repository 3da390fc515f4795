//! A change as the members of an object. `docs/events.md` describes them.
//!
//! The form differs from the model: the members are at the same place in every kind of event, whatever the
//! change calls them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{
    finding::Finding,
    kernel::{Address, Cgroup, Netns, Process},
    scalar::{Decimal, Version, is_default, names, nanos},
    start::Start,
};
use crate::{
    model::{
        change::{Change, ChangeKind, CniCall, ContainerRef, End, PodRef, StopReason},
        fact::{Listener, Loss, Origin},
        id::ContainerId,
        trace::TraceParent,
    },
    sink::{
        Label,
        escape::brief,
        render::{text::detail, wall_clock::Rfc3339},
    },
};

/// One event (docs/events.md).
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event<'a> {
    schema: Version,
    node: &'a str,
    boot_id: &'a str,
    /// Counts the events of a boot, upwards. An event that is evidence of a finding has none.
    #[serde(skip_serializing_if = "is_default")]
    seq: u64,
    at: Rfc3339,
    /// Since boot, suspend included.
    boot_ns: Decimal<u64>,
    #[schemars(schema_with = "names::<ChangeKind>")]
    event: &'static str,
    origin: Origin,
    /// It became known only after later events were reported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    pod: Option<Pod<'a>>,
    sandbox: Option<Sandbox<'a>>,
    container: Option<&'a ContainerRef>,
    netns: Option<Netns>,
    cgroup: Option<Cgroup<'a>>,
    /// The process that the event is about, or the one that caused it.
    process: Option<Process<'a>>,
    cni: Option<Cni<'a>>,
    address: Option<Address<'a>>,
    listening: Option<Listening>,
    gap: Option<Gap>,
    start: Option<Start<'a>>,
    finding: Option<Finding<'a>>,
    /// What the event says besides its name and its pod, in words for people, as in the text output.
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
}

/// The pod that an event is about.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "EventPod")]
struct Pod<'a> {
    #[serde(flatten)]
    pod: Option<&'a PodRef>,
    /// In `pod.gone`: time since the pod was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    lived_ns: Option<Decimal<u128>>,
}

/// The sandbox that an event is about.
#[skip_serializing_none]
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "EventSandbox")]
struct Sandbox<'a> {
    id: Option<&'a ContainerId>,
    /// In `sandbox.ready`: time since the sandbox was created.
    ready_after_ns: Option<Decimal<u128>>,
    /// In `sandbox.stopped`: why it stopped.
    reason: Option<StopReason>,
}

/// A CNI call; the event's process is the plugin's.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Cni<'a> {
    command: &'a str,
    /// The name of the program's file.
    plugin: &'a str,
    /// The namespace's path (`CNI_NETNS`); empty if the variable was empty.
    netns: Option<&'a str>,
    /// The interface's name in the namespace.
    ifname: Option<&'a str>,
    /// The plugin that called this one.
    called_by: Option<&'a str>,
    /// The call came from a CNI daemon's pod and not from the node's runtime.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    delegated: bool,
    /// The span that the caller gave the call (`TRACEPARENT`, W3C Trace Context); absent if it gave none, or
    /// what it gave is not valid.
    traceparent: Option<TraceParent>,
    /// In `cni.finished`; absent if the end of the call was not seen.
    exit_code: Option<u32>,
    /// In `cni.finished`: time from exec to exit.
    duration_ns: Option<Decimal<u128>>,
}

/// The first socket of a container that listens.
#[derive(Serialize, JsonSchema)]
struct Listening {
    #[serde(flatten)]
    socket: Listener,
    /// Time since the container started.
    after_ns: Decimal<u128>,
}

/// A loss of records.
#[derive(Serialize, JsonSchema)]
struct Gap {
    what: Loss,
    /// How many were lost, as far as that can be counted.
    count: Decimal<u64>,
    /// How long nothing was seen, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    lasted_ns: Option<Decimal<u128>>,
}

impl<'a> Event<'a> {
    pub(super) fn of(change: &'a Change, label: &'a Label) -> Self {
        let context = &change.context;
        let mut event = Self {
            schema: Version,
            node: &label.node,
            boot_id: &label.boot_id,
            seq: change.seq,
            at: Rfc3339(label.wall_ns(change.at)),
            boot_ns: Decimal(change.at.0),
            event: change.what.into_str(),
            origin: change.origin,
            late: change.late,
            pod: context.pod.as_ref().map(|pod| Pod { pod: Some(pod), lived_ns: None }),
            sandbox: context.sandbox.as_ref().map(|id| Sandbox { id: Some(id), ..Sandbox::default() }),
            container: context.container.as_ref(),
            netns: context.netns.map(Netns::of),
            cgroup: context.cgroup.as_ref().map(Cgroup::of),
            process: None,
            cni: None,
            address: None,
            listening: None,
            gap: None,
            start: None,
            finding: None,
            text: brief(&detail(change)),
        };
        event.fill(&change.what, label);
        event
    }

    /// Sets the members that only this kind of event has.
    fn fill(&mut self, what: &'a ChangeKind, label: &Label) {
        match what {
            ChangeKind::ProcessExec { process, filename, argv, argv_cut } => {
                self.process = Some(Process::executed(process, filename, argv, *argv_cut));
            }
            ChangeKind::ProcessExit { process, end } => {
                self.process = Some(Process::ended(process, Some(end), None));
            }
            ChangeKind::ContainerExited { process, end, ran } => {
                self.process = Some(Process::ended(process, Some(end), *ran));
            }
            ChangeKind::CniStarted { call } => self.cni(call, None, None),
            ChangeKind::CniFinished { call, end, duration } => self.cni(call, end.as_ref(), Some(*duration)),
            ChangeKind::NetnsCreated { by: process }
            | ChangeKind::CgroupCreated { by: process }
            | ChangeKind::CgroupRemoved { by: process }
            | ChangeKind::ContainerStarted { process } => self.process = Some(Process::of(process)),
            ChangeKind::ContainerListening { process, socket, since_started } => {
                self.process = Some(Process::of(process));
                self.listening = Some(Listening { socket: *socket, after_ns: nanos(*since_started) });
            }
            ChangeKind::NetnsDestroyed { by } => self.process = by.as_ref().map(Process::of),
            ChangeKind::NetnsFreed { teardown } => {
                if let Some(teardown) = teardown {
                    self.netns.get_or_insert_default().teardown_ns = Some(nanos(*teardown));
                }
            }
            ChangeKind::AddressAdded { address, ifname } | ChangeKind::AddressRemoved { address, ifname } => {
                self.address = Some(Address::of(*address, ifname));
            }
            ChangeKind::SandboxReady { since_created } => {
                self.sandbox.get_or_insert_default().ready_after_ns = since_created.map(nanos);
            }
            ChangeKind::SandboxStopped { why } => {
                self.sandbox.get_or_insert_default().reason = Some(*why);
            }
            ChangeKind::PodStarted(start) => self.start = Some(Start::of(start)),
            ChangeKind::PodGone { lived } => self.pod.get_or_insert_default().lived_ns = Some(nanos(*lived)),
            ChangeKind::Gap { what, count, lasted } => {
                let lasted_ns = lasted.map(|it| Decimal(it.as_nanos()));
                self.gap = Some(Gap { what: *what, count: Decimal(*count), lasted_ns });
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
        let CniCall { command, plugin, netns, ifname, process, called_by, delegated, trace } = call;
        self.cni = Some(Cni {
            command,
            plugin,
            netns: netns.as_deref(),
            ifname: ifname.as_deref(),
            called_by: called_by.as_deref(),
            delegated: *delegated,
            traceparent: trace.as_ref().map(|it| it.parent),
            exit_code: end.map(|end| end.code),
            duration_ns: duration.map(nanos),
        });
        self.process = Some(Process::ended(process, end, None));
    }
}
