//! Facts that show a process: the exec of a program, a CNI call, and a process that a listing found.

use probe_common::event::class;

use super::{
    cgroup, cni, container,
    exit::{self, unseen},
    identity, recovery, restart, sandbox,
};
use crate::{
    engine::world::{
        EventContext, World, argv, daemon,
        lookup::{self, call::Kind},
        process_of,
        table::process::{Process, Program, State, name::class_of},
    },
    model::{
        change::ChangeKind,
        fact::{CniCalled, Executed, Origin, ProcessFound, Task},
        recovery::{Source, TimedSource},
        time::Timestamp,
    },
};

/// Takes in the exec of a program with `CNI_COMMAND` in its environment.
pub(crate) fn cni_called(world: &mut World, ctx: EventContext, it: CniCalled) {
    let key = it.task.key;
    if world.processes.get(key).is_some_and(|known| known.executed_at == Some(ctx.at)) {
        return;
    }
    if lookup::call::is_foreign(world, &it) {
        world.counts.cni_foreign += 1;
        return;
    }
    let is_part = !it.host && lookup::call::is_part_of_cut_off(world, &it.task);
    let host = it.host || is_part;
    let ctx = if is_part { EventContext { origin: Origin::Kernel, ..ctx } } else { ctx };
    if host {
        learn_host_netns(world, &it.task, class::CNI);
    }
    let filename = daemon::kept_path(&it.task.comm, &it.filename);
    let program = Program { filename, class: class::CNI, ns_pid: key.pid, is_query: false, about: None };
    began(world, ctx, &it.task, program);
    let kind = lookup::call::kind_of(world, &it.task, &it.filename, &it.variables);
    match kind {
        Kind::Plugin => {
            let caller = it.caller.map_or(it.task.parent, |caller| caller.key);
            let is_new_path = it.variables.path.is_some() && it.variables.path != world.records.cni_path;
            let new_path = if is_new_path { it.variables.path.clone() } else { None };
            let call = lookup::call::begun(world, ctx, &it.task, caller, &it.filename, it.variables, !host);
            if call.top && call.pod.names_pod() && new_path.is_some() {
                world.records.cni_path = new_path;
            }
            cni::begin(world, ctx, call, true);
            cni::may_be_over(world, ctx, key);
            return;
        }
        Kind::Quiet => world.counts.cni_quiet += 1,
        Kind::Helper => world.counts.cni_helpers += 1,
    }
    if !world.calls.contains_key(&key) {
        world.processes.set_quiet(key);
    }
}

/// Takes in the exec of a program.
pub(crate) fn executed(world: &mut World, ctx: EventContext, it: Executed) {
    let key = it.task.key;
    if world.processes.get(key).is_some_and(|known| known.executed_at == Some(ctx.at)) {
        return;
    }
    if recovery::only_orders(world, ctx, &it) {
        return;
    }
    learn_host_netns(world, &it.task, it.class);
    let init = argv::is_init(&it.task.comm, &it.argv);
    // Arguments count only for programs that the hooks class as a runtime's or a monitor's, outside of
    // containers.
    let of_node = it.class & class::RUNTIME != 0 && !world.cgroups.is_in_container(it.task.cgroup);
    let mut about = if of_node { argv::about(&it.argv) } else { None };
    // The arguments of a runtime's init do not name its container. Those of its parent do.
    if init && about.is_none() {
        about = world.processes.get(it.task.parent).and_then(|parent| parent.program.about.clone());
    }
    let program = Program {
        filename: daemon::kept_path(&it.task.comm, &it.filename),
        class: it.class,
        ns_pid: it.ns_pid,
        is_query: argv::is_query(&it.task.comm, &it.argv),
        about: about.clone(),
    };
    began(world, ctx, &it.task, program);
    recovery::started_at(world, &it.task, it.class, TimedSource::hooked(ctx.at));
    if about.is_some() && world.boot.is_restarting() && !argv::is_ending(&it.argv) {
        restart::runtime_works(
            world,
            TimedSource::hooked(ctx.at),
            lookup::process::runtime_of(world, it.task.parent),
        );
    }
    let made = about.as_ref().and_then(|_| argv::read(&it.argv));
    if let Some(id) = about.as_ref()
        && argv::is_ending(&it.argv)
    {
        sandbox::stopping(world, ctx, id);
    }
    let own = world.cgroups.own_container(it.task.cgroup);
    let is_top = it.class & class::CONTAINER_TOP != 0;
    let hides = (made.is_some() || is_top) && argv::hides_programs(&it.argv, &it.filename);
    let hidden = if hides {
        about.clone().or_else(|| own.clone().filter(|id| world.containers.may_be_first(id, key)))
    } else {
        None
    };
    let mut subject = world.cgroups.subject_of(&it.task);
    subject.container = about.or(subject.container);
    let task = it.task;
    let class = it.class;
    let argv_seen: usize = it.argv.iter().map(|arg| arg.len() + 1).sum();
    let argv_cut = usize::try_from(it.argv_total).is_ok_and(|total| total > argv_seen);
    let wait = lookup::context::wait_of(world, &subject);
    let process = process_of(&task);
    world.report(
        ctx,
        subject,
        wait,
        ChangeKind::ProcessExec { process, filename: it.filename, argv: it.argv, argv_cut },
    );
    if let Some(made) = made {
        identity::made(world, ctx, made);
    }
    if let Some(id) = hidden {
        container::programs_hidden(world, &id);
    }
    if let Some(id) = own
        && !init
    {
        container::ran(world, ctx, &id, &task, class);
    }
}

/// Adds a process to the table, or gives a known process its new program.
fn began(world: &mut World, ctx: EventContext, task: &Task, program: Program) {
    exit::supersede(world, ctx, task.key);
    let known = world.processes.get(task.key);
    if known.is_some_and(|known| known.executed_at > Some(ctx.at)) {
        return;
    }
    let row = Process {
        key: task.key,
        parent: task.parent,
        comm: task.comm.clone(),
        cgroup: task.cgroup,
        netns: task.netns,
        program,
        executed_at: Some(ctx.at),
        found_at: known.and_then(|known| known.found_at),
        quiet: false,
        // It runs a program now, even if a listing before this exec did not have it.
        state: known.map(|known| known.state).filter(|state| state.is_since(ctx.at)).unwrap_or_default(),
    };
    world.processes.insert(row);
}

/// Takes in a process that a listing found.
pub(crate) fn found(world: &mut World, ctx: EventContext, it: ProcessFound) {
    let key = it.task.key;
    let known = world.processes.get(key);
    if known.is_some_and(|known| known.state != State::Running) {
        return;
    }
    let class = match known {
        Some(known) => known.program.class,
        None if it.forged => 0,
        None => class_of(&it.task.comm),
    };
    let was_seen = known.is_some_and(|known| known.executed_at.is_some());
    let mut row = known.cloned().unwrap_or_else(|| unseen(&it.task));
    row.found_at = Some(ctx.at);
    if row.executed_at.is_none() {
        let about = argv::about(&it.argv);
        let filename = daemon::kept_path(&row.comm, &it.filename);
        let is_query = argv::is_query(&row.comm, &it.argv);
        row.program = Program { filename, class, ns_pid: it.ns_pid, is_query, about };
    }
    exit::supersede(world, ctx, key);
    world.processes.insert(row);
    if key.pid == 1 || class & class::CALLER != 0 {
        learn_host_netns(world, &it.task, class::CALLER);
    }
    cgroup::named(world, ctx, it.task.cgroup, &it.cgroup_path);
    if !was_seen {
        recovery::started_at(
            world,
            &it.task,
            class,
            TimedSource { at: Timestamp(key.start), source: Source::ProcStart },
        );
    }
    if let Some(made) = argv::read(&it.argv)
        && !world.cgroups.is_in_container(it.task.cgroup)
    {
        identity::made(world, ctx, made);
    }
    let first_in =
        world.cgroups.own_container(it.task.cgroup).filter(|id| world.containers.may_be_first(id, key));
    let is_inside = world.cgroups.is_in_container(it.task.cgroup);
    let about = if is_inside { None } else { argv::about(&it.argv) };
    if argv::hides_programs(&it.argv, &it.filename)
        && let Some(id) = about.or(first_in)
    {
        container::programs_hidden(world, &id);
    }
    if let Some(variables) = it.cni {
        cni::found(world, ctx, &it.task, &it.filename, variables);
    } else if let Some(id) = world.cgroups.own_container(it.task.cgroup)
        && !argv::is_init_found(&it.task.comm, &it.argv)
    {
        container::found(world, ctx, &id, &it.task, it.ns_pid, class);
    }
}

/// Learns the node's own network namespace. Runtimes and their callers run in it, and CNI plugins begin in
/// it.
fn learn_host_netns(world: &mut World, task: &Task, class: u32) {
    if world.node.host_netns == 0
        && class & (class::CALLER | class::CNI) != 0
        && !world.cgroups.is_in_container(task.cgroup)
    {
        world.node.host_netns = task.netns;
    }
}
