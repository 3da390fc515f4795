//! CNI calls that are running. One call is one plugin process: it begins with the exec and ends with the exit.
//!
//! Programs that a plugin runs inherit its `CNI_*` variables (iptables runs eight times for one ADD). Only a program
//! from one of the directories in `CNI_PATH` counts as a plugin.

use std::sync::Arc;

use probe_common::event::class;
use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        held::{Subject, Wait},
        world::{
            EventContext, World,
            args::Args,
            daemon,
            presence::Voucher,
            process::{Program, State},
            process_of,
        },
    },
    model::{
        change::{ChangeKind, CniCall, End, StopReason},
        fact::{CniCalled, CniVariables, NameSource, Origin, PodName, Task},
        id::{ContainerId, TaskKey},
        recovery::TimedSource,
        time::Timestamp,
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Shared with the events of the call and with evidence.
    pub(crate) call: Arc<CniCall>,
    pub(crate) at: Timestamp,
    pub(crate) origin: Origin,
    pub(crate) container: Option<ContainerId>,
    /// The pod that `CNI_ARGS` names.
    pub(crate) pod: PodName,
    /// Whether the runtime itself made the call. Only then its success counts for the sandbox.
    pub(crate) top: bool,
    /// The path of the plugin's executable.
    pub(crate) path: String,
    /// The process that made the call: the runtime, even where a plugin or a wrapper stands between.
    #[serde(default)]
    caller: TaskKey,
    /// When the caller ended, while the plugin ran on, or gave the call up to end itself: nobody reads the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::engine) cut_off_at: Option<Timestamp>,
}

/// The kinds of process that have `CNI_COMMAND` in their environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plugin,
    /// `VERSION` and `STATUS` ask about the plugin, not about a pod.
    Quiet,
    Helper,
}

/// How many programs can stand between a plugin and a plugin that it runs: a wrapper, a shell.
const HELPERS: usize = 4;

impl World {
    pub(super) fn cni_called(&mut self, ctx: EventContext, it: CniCalled) {
        let key = it.task.key;
        if self.processes.get(key).is_some_and(|known| known.executed_at == Some(ctx.at)) {
            return;
        }
        if self.is_foreign_call(&it) {
            self.counts.cni_foreign += 1;
            return;
        }
        let is_part = !it.host && self.is_part_of_cut_off(&it.task);
        let host = it.host || is_part;
        let ctx = if is_part { EventContext { origin: Origin::Kernel, ..ctx } } else { ctx };
        if host {
            self.learn_host_netns(&it.task, class::CNI);
        }
        let filename = daemon::kept_path(&it.task.comm, &it.filename);
        let program = Program { filename, class: class::CNI, ns_pid: key.pid, about: None };
        self.began(ctx, &it.task, program);
        let kind = self.kind_of(&it.task, &it.filename, &it.variables);
        match kind {
            Kind::Plugin => {
                let caller = it.caller.map_or(it.task.parent, |caller| caller.key);
                let is_new_path = it.variables.path.is_some() && it.variables.path != self.records.cni_path;
                let new_path = if is_new_path { it.variables.path.clone() } else { None };
                let call = self.call_of(ctx, &it.task, caller, &it.filename, it.variables, !host);
                if call.top && call.pod.names_pod() && new_path.is_some() {
                    self.records.cni_path = new_path;
                }
                self.begin(ctx, call, true);
                self.may_be_over(ctx, key);
                return;
            }
            Kind::Quiet => self.counts.cni_quiet += 1,
            Kind::Helper => self.counts.cni_helpers += 1,
        }
        if !self.calls.contains_key(&key) {
            self.processes.set_quiet(key);
        }
    }

    /// Whether a call is not the node's own and no part of one: what containers do that merely looks like CNI. It changes nothing
    /// but its count.
    fn is_foreign_call(&self, it: &CniCalled) -> bool {
        let container = it.variables.container_id.as_deref().and_then(ContainerId::parse);
        !it.host && !self.is_part_of_cut_off(&it.task) && self.host_calls(container.as_ref()).next().is_none()
    }

    /// A plugin that was running when the agent started. The call's start is the start of its process. No event is sent
    /// for it.
    pub(super) fn cni_found(
        &mut self,
        ctx: EventContext,
        task: &Task,
        filename: &str,
        variables: CniVariables,
    ) {
        let is_known = self.calls.contains_key(&task.key) || self.cgroups.is_in_container(task.cgroup);
        if is_known || self.kind_of(task, filename, &variables) != Kind::Plugin {
            return;
        }
        let call = self.call_of(
            EventContext { at: Timestamp(task.key.start), ..ctx },
            task,
            task.parent,
            filename,
            variables,
            false,
        );
        self.begin(ctx, call, false);
    }

    fn call_of(
        &self,
        ctx: EventContext,
        task: &Task,
        caller: TaskKey,
        filename: &str,
        variables: CniVariables,
        delegated: bool,
    ) -> Call {
        let CniVariables { command, container_id, netns, ifname, args, path: _ } = variables;
        let around = self.call_around(task.parent);
        let (called_by, cut_off_at) =
            (around.map(|it| it.call.plugin.clone()), around.and_then(|it| it.cut_off_at));
        let plugin = filename.rsplit('/').next().unwrap_or(filename).to_owned();
        Call {
            at: ctx.at,
            origin: if delegated { Origin::Delegated } else { ctx.origin },
            container: container_id.as_deref().and_then(ContainerId::parse),
            pod: args.map(|text| Args::read(&text).pod).unwrap_or_default(),
            top: !delegated && called_by.is_none(),
            path: filename.to_owned(),
            caller,
            cut_off_at,
            call: Arc::new(CniCall {
                command,
                plugin,
                netns,
                ifname,
                process: process_of(task),
                called_by,
                delegated,
            }),
        }
    }

    fn begin(&mut self, ctx: EventContext, call: Call, told: bool) {
        // A listing can show a plugin before the record of its start is read. What the hook tells is worth more.
        let known = self.calls.get(&call.call.process.key);
        if known.is_some_and(|known| !told || known.origin != Origin::Listed) {
            return;
        }
        if let Some((Some(id), at)) = known.map(|known| (known.container.clone(), known.at)) {
            self.boot.network_not_trying(&id, at);
        }
        let command = call.call.command.as_str();
        if call.top && command == "ADD" {
            if told && self.boot.is_restarting() {
                self.runtime_works(TimedSource::hooked(ctx.at), self.runtime_of(call.caller));
            }
            self.network_added(ctx, &call);
        } else {
            self.pods.learn_if_known(&call.pod, NameSource::CniArgs);
        }
        self.attachment_called(ctx, &call);
        let is_deleted = call.top && command == "DEL";
        let deleted = if is_deleted { call.container.clone() } else { None };
        if let Some(id) = &deleted {
            self.sandbox_recalled(ctx, id);
        }
        if told {
            let subject = self.call_subject(&call);
            let wait = if call.pod.name.is_some() { Wait::Name } else { self.wait_of(&subject) };
            let ctx = EventContext { origin: call.origin, ..ctx };
            self.tell(ctx, subject, wait, ChangeKind::CniStarted { call: Arc::clone(&call.call) });
        }
        if let Some(id) = &deleted {
            self.sandbox_stopping(ctx, id);
            self.stop(ctx, id, StopReason::NetworkRemoved);
        }
        self.calls.insert(call.call.process.key, call);
    }

    /// The runtime calls ADD for a sandbox. With most runtimes this is the first sign of the sandbox.
    fn network_added(&mut self, ctx: EventContext, call: &Call) {
        let Some(id) = &call.container else { return };
        let pod = self.pod_lives(ctx, &call.pod, NameSource::CniArgs);
        if pod.is_some() {
            self.sandbox_seen(ctx, id, pod);
        }
        self.phase_turns(pod);
        self.sandboxes.vouch(id, Voucher::Kernel, ctx.at);
        self.network_trying(call);
        if let Some(path) = &call.call.netns {
            self.claim_at_call(ctx, id, path, call.caller);
        }
    }

    /// A plugin's process has ended. `end` is missing if no hook saw its exit.
    pub(super) fn cni_finished(&mut self, ctx: EventContext, mut call: Call, end: Option<End>) {
        call.cut_off_at = call.cut_off_at.or_else(|| self.given_up_at(&call, end.as_ref()));
        let succeeded = end.as_ref().is_some_and(|end| end.code == 0);
        self.attachment_answered(ctx, &call, end.as_ref());
        if self.boot.is_restarting() {
            self.restart_called(ctx.at, &call, end.as_ref());
        }
        let is_own = call.origin != Origin::Delegated && call.call.ifname.as_deref() != Some("lo");
        if succeeded && is_own && call.call.command == "ADD" {
            self.ask_plugin_version(ctx.at, &call.path);
        }
        if call.top && call.call.command == "ADD" {
            self.network_tried(ctx.at, &call, succeeded);
            if call.origin == Origin::Listed {
                self.sandboxes.found_add_ended(call.container.as_ref());
            }
            self.phase_turns(call.container.as_ref().and_then(|id| self.sandboxes.get(id)?.pod));
        }
        let subject = self.call_subject(&call);
        let wait = if call.pod.name.is_some() { Wait::Name } else { self.wait_of(&subject) };
        let duration = ctx.at.since(call.at);
        let is_add = call.call.command == "ADD";
        let told = EventContext {
            origin: if call.origin == Origin::Delegated { call.origin } else { ctx.origin },
            ..ctx
        };
        self.tell(told, subject, wait, ChangeKind::CniFinished { call: call.call, end, duration });
        if call.top
            && is_add
            && let Some(id) = call.container
        {
            self.may_be_ready(ctx, &id, false);
        }
    }

    /// Whether a plugin that the node's own runtime called, and that outlived the runtime, runs this program. The hooks find no
    /// runtime above that plugin, so they take the plugins that it runs for those of a daemon in a container.
    fn is_part_of_cut_off(&self, task: &Task) -> bool {
        let around = self.call_around(task.parent);
        around.is_some_and(|call| !call.call.delegated && call.cut_off_at.is_some())
            && !self.cgroups.is_in_container(task.cgroup)
    }

    /// When the caller of a call that a signal ended was told to end: a runtime that stops in order kills its plugins before
    /// it ends itself.
    fn given_up_at(&self, call: &Call, end: Option<&End>) -> Option<Timestamp> {
        end.filter(|end| !end.oom)?.signal?;
        let heard = self.processes.signals.get(&call.caller)?.iter();
        heard.filter(|it| it.tells_to_end()).map(|it| it.at).max()
    }

    /// The processes that made the calls that still run.
    pub(super) fn callers(&self) -> impl Iterator<Item = TaskKey> {
        self.calls.values().map(|call| call.caller)
    }

    /// A process has ended. The calls that it made and that still run are cut off.
    pub(super) fn caller_ended(&mut self, at: Timestamp, caller: TaskKey) {
        for call in self.calls.values_mut().filter(|call| call.caller == caller) {
            call.cut_off_at.get_or_insert(at);
        }
    }

    /// Ends a call whose process has already ended: the record of the call can come after the record of the exit.
    fn may_be_over(&mut self, ctx: EventContext, key: TaskKey) {
        let is_over = self.processes.get(key).is_some_and(|row| row.state != State::Running);
        if is_over && let Some(call) = self.calls.remove(&key) {
            self.cni_finished(ctx, call, None);
        }
    }

    fn call_subject(&self, call: &Call) -> Subject {
        let sandbox = call.container.as_ref();
        Subject {
            named: (call.pod != PodName::default()).then(|| call.pod.clone()),
            sandbox: sandbox.cloned(),
            netns: sandbox
                .and_then(|id| self.sandboxes.get(id))
                .and_then(|row| row.network.netns)
                .or_else(|| self.netns_at(call.call.netns.as_deref()?)),
            ..Subject::default()
        }
    }

    fn kind_of(&self, task: &Task, filename: &str, variables: &CniVariables) -> Kind {
        let caller = self.call_around(task.parent).is_some();
        let is_plugin = match &variables.path {
            Some(path) => {
                let folder = filename.rsplit_once('/').map(|(folder, _)| folder);
                folder
                    .is_some_and(|folder| path.split(':').any(|entry| entry.trim_end_matches('/') == folder))
            }
            // Without `CNI_PATH`, a program that a plugin runs is taken for a helper.
            None => !caller,
        };
        if !is_plugin {
            return Kind::Helper;
        }
        match variables.command.as_str() {
            "ADD" | "DEL" | "CHECK" | "GC" => Kind::Plugin,
            "VERSION" | "STATUS" => Kind::Quiet,
            _ => Kind::Helper,
        }
    }

    /// The call to which a process belongs: its own call, or the call of the plugin that runs it, perhaps by a helper.
    pub(super) fn call_around(&self, key: TaskKey) -> Option<&Call> {
        let parent = |key: &TaskKey| self.processes.get(*key).filter(|row| row.quiet).map(|row| row.parent);
        let mut line = std::iter::successors(Some(key), parent).take(HELPERS);
        line.find_map(|key| self.calls.get(&key))
    }

    /// Whether a listing found an ADD for this container that still runs. Such an ADD is not counted in the attachment:
    /// no hook sees the end of a program that began before the hook was attached.
    pub(super) fn has_found_add(&self, container: &ContainerId) -> bool {
        let is_found = |call: &Call| call.origin == Origin::Listed && call.top && call.call.command == "ADD";
        self.host_calls(Some(container)).any(is_found)
    }

    /// Whether the node's own runtime has a call open for the same container and the same namespace.
    pub(super) fn is_backed(&self, call: &Call) -> bool {
        self.host_calls(call.container.as_ref()).any(|own| own.call.netns == call.call.netns)
    }

    fn host_calls(&self, container: Option<&ContainerId>) -> impl Iterator<Item = &Call> {
        let of_it = move |call: &&Call| {
            container.is_some() && !call.call.delegated && call.container.as_ref() == container
        };
        self.calls.values().filter(of_it)
    }
}
