//! Reads a CNI call: its kind, the call around it, and whether it is the node's own.
//!
//! Programs that a plugin runs inherit its `CNI_*` variables (iptables runs eight times for one ADD). Only a
//! program from one of the directories in `CNI_PATH` counts as a plugin.

use std::sync::Arc;

use super::netns;
use crate::{
    engine::{
        queued_change::Subject,
        world::{EventContext, World, args::Args, process_of, table::call::Call},
    },
    model::{
        change::{CniCall, End},
        fact::{CniCalled, CniVariables, Origin, PodName, Task},
        id::{ContainerId, TaskKey},
        time::Timestamp,
        trace::{TraceContext, TraceParent},
    },
};

/// The kinds of process that have `CNI_COMMAND` in their environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plugin,
    /// `VERSION` and `STATUS` ask about the plugin, not about a pod.
    Quiet,
    Helper,
}

/// How many programs can stand between a plugin and a plugin that it runs: a wrapper, a shell.
const HELPERS: usize = 4;

/// Whether a call is not the node's own and no part of one: what containers do that merely looks like CNI. It
/// changes nothing but its count.
pub(crate) fn is_foreign(world: &World, it: &CniCalled) -> bool {
    let container = it.variables.container_id.as_deref().and_then(ContainerId::parse);
    !it.host && !is_part_of_cut_off(world, &it.task) && host_calls(world, container.as_ref()).next().is_none()
}

/// The row of a call that begins.
pub(crate) fn begun(
    world: &World,
    ctx: EventContext,
    task: &Task,
    caller: TaskKey,
    filename: &str,
    variables: CniVariables,
    delegated: bool,
) -> Call {
    let container = variables.container_id.as_deref().and_then(ContainerId::parse);
    let around = around(world, task.parent).or_else(|| {
        // No hook saw the process between: a plugin that is a shell script has forked itself.
        let is_direct =
            delegated || task.parent.pid == caller.pid || world.processes.get(task.parent).is_some();
        let open = if is_direct { None } else { container.as_ref() };
        host_calls(world, open)
            .filter(|call| call.caller == caller && call.call.command == variables.command)
            .max_by_key(|call| (call.call.ifname == variables.ifname, call.at))
    });
    // No plugin is above one that a daemon in a container runs.
    let above = around.or_else(|| {
        let open = if delegated { container.as_ref() } else { None };
        host_calls(world, open)
            .filter(|call| call.call.command == variables.command)
            .max_by_key(|call| call.at)
    });
    let trace = trace(TraceContext::read(&variables), above, delegated);
    let CniVariables { command, netns, ifname, args, .. } = variables;
    let called_by = around.map(|it| it.call.plugin.clone());
    let cut_off_at = around.and_then(|it| it.cut_off_at);
    let plugin = filename.rsplit('/').next().unwrap_or(filename).to_owned();
    Call {
        at: ctx.at,
        origin: if delegated { Origin::Delegated } else { ctx.origin },
        container,
        pod: args.map(|text| Args::read(&text).pod).unwrap_or_default(),
        top: !delegated && called_by.is_none(),
        path: filename.to_owned(),
        caller,
        cut_off_at,
        looked: None,
        call: Arc::new(CniCall {
            command,
            plugin,
            netns,
            ifname,
            process: process_of(task),
            called_by,
            delegated,
            trace,
        }),
    }
}

/// Returns where a call is in its caller's trace. Plugins mostly inherit the place that the plugin `above`
/// was given, or have none; then they are below that plugin. What a container hands over counts only within
/// the trace of the node's own call.
fn trace(own: Option<TraceContext>, above: Option<&Call>, delegated: bool) -> Option<TraceContext> {
    let inherited = above.and_then(|call| {
        let trace = call.call.trace.clone()?;
        Some(TraceContext { plugin: Some(call.call.process.key), ..trace })
    });
    match (own, inherited) {
        (Some(own), Some(inherited)) if own.is_of_other_span(&inherited) => {
            if !delegated {
                return Some(own);
            }
            if own.parent.trace_id != inherited.parent.trace_id {
                return Some(inherited);
            }
            // A container does not decide whether the caller's trace is sampled.
            let parent = TraceParent { flags: inherited.parent.flags, ..own.parent };
            Some(TraceContext { parent, state: inherited.state, ..own })
        }
        (_, Some(inherited)) => Some(inherited),
        (own, None) => {
            if delegated {
                None
            } else {
                own
            }
        }
    }
}

/// Whether a plugin that the node's own runtime called, and that outlived the runtime, runs this program. The
/// hooks find no runtime above that plugin, so they take the plugins that it runs for those of a daemon in a
/// container.
pub(crate) fn is_part_of_cut_off(world: &World, task: &Task) -> bool {
    let around = around(world, task.parent);
    around.is_some_and(|call| !call.call.delegated && call.cut_off_at.is_some())
        && !world.cgroups.is_in_container(task.cgroup)
}

/// When the caller of a call that a signal ended was itself sent a fatal signal: a runtime that stops in
/// order kills its plugins before it ends itself.
pub(crate) fn given_up_at(world: &World, call: &Call, end: Option<&End>) -> Option<Timestamp> {
    end.filter(|end| !end.oom)?.signal?;
    let heard = world.processes.signals.get(&call.caller)?.iter();
    heard.filter(|it| it.tells_to_end()).map(|it| it.at).max()
}

/// The processes that made the calls that still run.
pub(crate) fn callers(world: &World) -> impl Iterator<Item = TaskKey> {
    world.calls.values().map(|call| call.caller)
}

/// The subject of a call's changes.
pub(crate) fn subject(world: &World, call: &Call) -> Subject {
    let sandbox = call.container.as_ref();
    Subject {
        named: (call.pod != PodName::default()).then(|| call.pod.clone()),
        sandbox: sandbox.cloned(),
        netns: sandbox
            .and_then(|id| world.sandboxes.get(id))
            .and_then(|row| row.network.netns)
            .or_else(|| netns::at_path(world, call.call.netns.as_deref()?)),
        ..Subject::default()
    }
}

/// What a process with `CNI_COMMAND` in its environment is.
pub(crate) fn kind_of(world: &World, task: &Task, filename: &str, variables: &CniVariables) -> Kind {
    let caller = around(world, task.parent).is_some();
    let is_plugin = match &variables.path {
        Some(path) => {
            let folder = filename.rsplit_once('/').map(|(folder, _)| folder);
            folder.is_some_and(|folder| path.split(':').any(|entry| entry.trim_end_matches('/') == folder))
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

/// The call to which a process belongs: its own call, or the call of the plugin that runs it, perhaps by a
/// helper.
pub(crate) fn around(world: &World, key: TaskKey) -> Option<&Call> {
    let mut key = key;
    for _ in 0..HELPERS {
        if let Some(call) = world.calls.get(&key) {
            return Some(call);
        }
        key = world.processes.get(key).filter(|row| row.quiet)?.parent;
    }
    None
}

/// Whether a listing found an ADD for this container that still runs. Such an ADD is not counted in the
/// attachment: no hook sees the end of a program that began before the hook was attached.
pub(crate) fn has_found_add(world: &World, container: &ContainerId) -> bool {
    host_calls(world, Some(container))
        .any(|call| call.origin == Origin::Listed && call.top && call.call.command == "ADD")
}

/// Whether the node's own runtime has a call open for the same container and the same namespace.
pub(crate) fn is_backed(world: &World, call: &Call) -> bool {
    host_calls(world, call.container.as_ref()).any(|own| own.call.netns == call.call.netns)
}

fn host_calls<'a>(world: &'a World, container: Option<&ContainerId>) -> impl Iterator<Item = &'a Call> {
    world.calls.values().filter(move |call| {
        container.is_some() && !call.call.delegated && call.container.as_ref() == container
    })
}
