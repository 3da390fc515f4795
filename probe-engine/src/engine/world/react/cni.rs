//! CNI calls begin and end. One call is one plugin process: it begins with the exec and ends with the exit.

use std::sync::Arc;

use super::{attachment, claim, identity, pod, program, recovery, restart, sandbox, start};
use crate::{
    engine::{
        queued_change::Wait,
        world::{
            EventContext, World,
            lookup::{self, call::Kind},
            table::{
                call::{Call, Looked},
                presence::Voucher,
                process::State,
            },
        },
    },
    model::{
        change::{ChangeKind, End, Question, StopReason},
        fact::{CniVariables, NameSource, Origin, ProcessState, Task},
        finding::CniWait,
        id::TaskKey,
        recovery::TimedSource,
        time::Timestamp,
    },
};

/// The programs that are looked at below a plugin's process, each of which waits for the next one.
const DEEPEST: u8 = 8;

/// Begins the call of a plugin that was running when the agent started. The call's start is the start of its
/// process. No event is sent for it.
pub(crate) fn found(
    world: &mut World,
    ctx: EventContext,
    task: &Task,
    filename: &str,
    variables: CniVariables,
) {
    let is_known = world.calls.contains_key(&task.key) || world.cgroups.is_in_container(task.cgroup);
    if is_known || lookup::call::kind_of(world, task, filename, &variables) != Kind::Plugin {
        return;
    }
    let call = lookup::call::begun(
        world,
        EventContext { at: Timestamp(task.key.start), ..ctx },
        task,
        task.parent,
        filename,
        variables,
        false,
    );
    begin(world, ctx, call, false);
}

/// Begins a call. `reported`: a hook reports it, so it makes an event.
pub(crate) fn begin(world: &mut World, ctx: EventContext, call: Call, reported: bool) {
    // A listing can show a plugin before the record of its start is read. What the hook reports is worth
    // more.
    let known = world.calls.get(&call.call.process.key);
    if known.is_some_and(|known| !reported || known.origin != Origin::Listed) {
        return;
    }
    if let Some((Some(id), at)) = known.map(|known| (known.container.clone(), known.at)) {
        world.boot.network_not_trying(&id, at);
    }
    let command = call.call.command.as_str();
    if call.top && command == "ADD" {
        if reported && world.boot.is_restarting() {
            restart::runtime_works(
                world,
                TimedSource::hooked(ctx.at),
                lookup::process::runtime_of(world, call.caller),
            );
        }
        network_added(world, ctx, &call);
    } else {
        world.pods.learn_if_known(&call.pod, NameSource::CniArgs);
    }
    attachment::called(world, ctx, &call);
    let is_deleted = call.top && command == "DEL";
    let deleted = if is_deleted { call.container.clone() } else { None };
    if let Some(id) = &deleted {
        sandbox::recalled(world, ctx, id);
    }
    if reported {
        let subject = lookup::call::subject(world, &call);
        let wait =
            if call.pod.name.is_some() { Wait::Name } else { lookup::context::wait_of(world, &subject) };
        let ctx = EventContext { origin: call.origin, ..ctx };
        world.report(ctx, subject, wait, ChangeKind::CniStarted { call: Arc::clone(&call.call) });
    }
    if let Some(id) = &deleted {
        sandbox::stopping(world, ctx, id);
        sandbox::stop(world, ctx, id, StopReason::NetworkRemoved);
    }
    world.calls.insert(call.call.process.key, call);
}

/// Notes that the runtime calls ADD for a sandbox. With most runtimes this is the first sign of the sandbox.
fn network_added(world: &mut World, ctx: EventContext, call: &Call) {
    let Some(id) = &call.container else { return };
    let pod = pod::lives(world, ctx, &call.pod, NameSource::CniArgs);
    if pod.is_some() {
        identity::sandbox_seen(world, ctx, id, pod);
    }
    start::phase_turns(world, pod);
    world.sandboxes.vouch(id, Voucher::Kernel, ctx.at);
    recovery::network_trying(world, call);
    if let Some(path) = &call.call.netns {
        claim::at_call(world, ctx, id, path, call.caller);
    }
}

/// Ends a call, since the plugin's process has ended. `end` is missing if no hook saw its exit.
pub(crate) fn finished(world: &mut World, ctx: EventContext, mut call: Call, end: Option<End>) {
    call.cut_off_at = call.cut_off_at.or_else(|| lookup::call::given_up_at(world, &call, end.as_ref()));
    let succeeded = end.as_ref().is_some_and(|end| end.code == 0);
    attachment::answered(world, ctx, &call, end.as_ref());
    if world.boot.is_restarting() {
        restart::called(world, ctx.at, &call, end.as_ref());
    }
    let is_own = call.origin != Origin::Delegated && call.call.ifname.as_deref() != Some("lo");
    if succeeded && is_own && call.call.command == "ADD" {
        program::ask_plugin_version(world, ctx.at, &call.path);
    }
    if call.top && call.call.command == "ADD" {
        recovery::network_tried(world, ctx.at, &call, succeeded);
        if call.origin == Origin::Listed {
            world.sandboxes.found_add_ended(call.container.as_ref());
        }
        start::phase_turns(world, call.container.as_ref().and_then(|id| world.sandboxes.get(id)?.pod));
    }
    let subject = lookup::call::subject(world, &call);
    let wait = if call.pod.name.is_some() { Wait::Name } else { lookup::context::wait_of(world, &subject) };
    let duration = ctx.at.since(call.at);
    let is_add = call.call.command == "ADD";
    let finished = EventContext {
        origin: if call.origin == Origin::Delegated { call.origin } else { ctx.origin },
        ..ctx
    };
    world.report(finished, subject, wait, ChangeKind::CniFinished { call: call.call, end, duration });
    if call.top
        && is_add
        && let Some(id) = call.container
    {
        sandbox::may_be_ready(world, ctx, &id, false);
    }
}

/// Cuts off the calls of a process that has ended.
pub(crate) fn caller_ended(world: &mut World, at: Timestamp, caller: TaskKey) {
    for call in world.calls.values_mut().filter(|call| call.caller == caller) {
        call.cut_off_at.get_or_insert(at);
    }
}

/// Ends a call whose process has already ended: the record of the call can come after the record of the exit.
pub(crate) fn may_be_over(world: &mut World, ctx: EventContext, key: TaskKey) {
    let is_over = world.processes.get(key).is_some_and(|row| row.state != State::Running);
    if is_over && let Some(call) = world.calls.remove(&key) {
        finished(world, ctx, call, None);
    }
}

/// Asks what an open call waits for: its own process first.
pub(crate) fn look(world: &mut World, key: TaskKey, now: Timestamp) {
    let Some(call) = world.calls.get_mut(&key) else { return };
    let process = call.call.process.clone();
    let asked = Question::Process { process: process.key };
    // What was seen before counts until the answer.
    let waits = call.looked.take().and_then(|it| it.waits);
    call.looked = Some(Looked { at: now, process, waits, deep: 0 });
    world.ask(asked);
}

/// Notes what the processes of open calls wait for. If such a process waits for a program that it started,
/// asks about that program.
pub(crate) fn looked_at(world: &mut World, it: &ProcessState) {
    let child = lookup::process::latest_child(world, it.process);
    let mut is_asked = false;
    for call in world.calls.values_mut() {
        let Some(looked) = call.looked.as_mut().filter(|looked| looked.process.key == it.process) else {
            continue;
        };
        looked.waits = CniWait::of(&looked.process, looked.at.since(call.at), it);
        if let Some(child) = &child
            && looked.deep < DEEPEST
            && looked.waits.as_ref().is_none_or(CniWait::may_be_for_program)
        {
            looked.process = child.clone();
            looked.deep += 1;
            is_asked = true;
        }
    }
    if is_asked && let Some(child) = child {
        world.ask(Question::Process { process: child.key });
    }
}
