//! Notices when a runtime or the kubelet restarts while the node runs on, and collects what it cost.
//!
//! A restart begins with the end of a process that had run for a while, and goes on until another process of
//! the same program is ready and no pod waits any more. What ends again before that belongs to the same
//! restart, so that a daemon in a crash loop is one. Programs of a runtime other than its daemon (a shim,
//! `ctr`, `crictl`) are none.
//!
//! **Invariant:** no verdict depends on a restart, but that a daemon ended and nobody has started it again
//! (`daemon_failing`). `restarted_in_bulk` names the versions. Without an open one, an event costs a look at
//! an empty list.

use std::time::Duration;

use probe_common::runtime::Runtime;

use crate::{
    engine::{
        boot::{WINDOW, network::less, report::HUNG},
        timer,
        world::{
            World,
            daemon::{is_kubelet, is_work_of},
            lookup::{self, daemons::RESIDENT},
            table::{
                call::Call,
                failing::UP,
                process::{Process, State},
                sandbox::MOMENTS,
            },
        },
    },
    model::{
        change::{End, Question},
        id::TaskKey,
        recovery::{Daemon, DaemonEnd, HeldPod, KubeletListens, Restart, RestartClose, Source, TimedSource},
        time::Timestamp,
    },
};

/// How long to wait for further events before a restart is looked at.
const SETTLE: Duration = Duration::from_secs(1);

/// How often a restart in which pods wait is looked at: a pod that was deleted waits no more.
const AGAIN: Duration = Duration::from_secs(30);

/// At most this many restarts of a boot are kept, the last ones.
pub(crate) const KEPT: usize = 32;

/// At most this many pods are noted.
pub(crate) const HELD: usize = 64;

/// Notes that a process of a runtime or a kubelet of this node runs.
pub(crate) fn daemon_runs(world: &mut World, key: TaskKey, comm: &str, mark: TimedSource) {
    let open = &world.boot.recovery.restarts.open;
    let Some(place) = open.iter().position(|it| it.comm == comm) else { return };
    let Some(row) = open.get(place) else { return };
    if !row.process.is_some_and(|known| known == key || world.processes.is_running(known))
        && is_after(row, mark)
    {
        takes_over(world, place, key, mark);
    }
}

/// Begins or ends a restart, since a process with the name of a daemon has ended. `ended`: none if nobody
/// saw how.
pub(crate) fn daemon_ended(world: &mut World, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
    if !lookup::daemons::is_of_node(world, row) {
        return;
    }
    note_failed(world, row, at, ended.as_ref());
    // The next one may look for plugins in other folders.
    if !is_kubelet(&row.comm) && at.since(Timestamp(row.key.start)) >= RESIDENT {
        world.records.cni_path = None;
    }
    let open = &world.boot.recovery.restarts.open;
    if let Some((place, known)) = open.iter().enumerate().find(|(_, it)| it.comm == row.comm) {
        if known.process != Some(row.key) {
            return;
        }
        let lived = known.started.map_or(Duration::ZERO, |mark| at.since(mark.at));
        let is_held = known.held.iter().any(|pod| pod.until.is_none());
        if lived < UP || is_held {
            ends_again(world, place, row, at, ended);
            return;
        }
        let close = if known.ready().is_some() { RestartClose::AsBefore } else { RestartClose::NotReady };
        close_restart(world, place, close, at);
    }
    let is_daemon =
        at.since(Timestamp(row.key.start)) >= RESIDENT && lookup::daemons::serves_pods(world, &row.comm);
    if is_daemon && !world.boot.is_going_down(at) {
        begin_restart(world, row, at, ended);
    }
}

/// Notes that a daemon failed soon after its start, or had come up.
fn note_failed(world: &mut World, row: &Process, at: Timestamp, ended: Option<&DaemonEnd>) {
    // An end that nobody saw may have been long before it was noticed.
    let Some(DaemonEnd { end, told, .. }) = ended else { return };
    if row.program.is_query {
        return;
    }
    let started = Timestamp(row.key.start);
    if at.since(started) >= UP {
        world.failing.came_up(&row.comm);
        return;
    }
    // A process that aborts sends the signal to itself.
    let is_told = told.as_ref().is_some_and(|told| told.by.key != row.key);
    if end.code != 0 && (end.oom || !is_told) {
        world.failing.failed(&row.comm, started, at, end.clone());
    }
}

fn begin_restart(world: &mut World, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
    let daemon = if is_kubelet(&row.comm) { Daemon::Kubelet } else { Daemon::Runtime };
    let mut before = lookup::recovery::running_pods(world, at).pods;
    before.retain(|pod| !pod.interfaces.is_empty());
    let mut restart = Restart {
        daemon,
        comm: row.comm.clone(),
        path: row.program.filename.clone(),
        was: world.records.with_version(row),
        ran_since: Timestamp(row.key.start),
        noticed_at: at,
        ended,
        before,
        ..Restart::default()
    };
    if daemon == Daemon::Runtime {
        let cut_off = world
            .calls
            .values()
            .filter(|call| {
                is_counted(call)
                    && is_its_call(lookup::process::runtime_of(world, call.call.process.parent), &restart)
            })
            .count();
        restart.calls.cut_off = u32::try_from(cut_off).unwrap_or(u32::MAX);
    }
    world.boot.recovery.restarts.open.push(restart);
    let place = world.boot.recovery.restarts.open.len() - 1;
    adopt_successor(world, place, row.key);
    refresh(world, place, at);
    restart_changed(world, at);
}

/// Notes that the process that had begun ended too, or was another program with the same name.
fn ends_again(world: &mut World, place: usize, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
    let lived = at.since(Timestamp(row.key.start));
    // It was asked for its version, for example: it ended by itself and with success.
    let is_query = ended.as_ref().is_some_and(|it| it.end.code == 0 && it.told.is_none()) && lived < RESIDENT;
    if let Some(restart) = world.boot.recovery.restarts.open.get_mut(place) {
        (restart.started, restart.process, restart.is) = (None, None, None);
        (restart.answers, restart.first_pod) = (None, None);
        restart.listens.clear();
        restart.noticed_at = at;
        if !is_query {
            restart.again = restart.again.saturating_add(1);
            restart.ended_again = ended;
        }
    }
    adopt_successor(world, place, row.key);
    restart_changed(world, at);
}

/// Finds another process of the program that may have begun before the end of this one was known.
fn adopt_successor(world: &mut World, place: usize, ended: TaskKey) {
    let Some(restart) = world.boot.recovery.restarts.open.get(place) else { return };
    let others = lookup::daemons::named(world, |comm| comm == restart.comm).filter(|row| row.key != ended);
    let began = others.map(|row| {
        let forked = TimedSource { at: Timestamp(row.key.start), source: Source::ProcStart };
        (row.executed_at.map_or(forked, TimedSource::hooked), row.key)
    });
    let next = began.filter(|(mark, _)| is_after(restart, *mark)).min_by_key(|(mark, key)| (mark.at, *key));
    if let Some((mark, key)) = next {
        takes_over(world, place, key, mark);
    }
}

fn takes_over(world: &mut World, place: usize, key: TaskKey, mark: TimedSource) {
    let Some(restart) = world.boot.recovery.restarts.open.get_mut(place) else { return };
    (restart.started, restart.process) = (Some(mark), Some(key));
    if restart.daemon == Daemon::Runtime {
        // Where nothing else happens, its list would be asked for only a minute later.
        world.ask(Question::Statuses);
    }
    // Its file may be another one than before.
    let path = world.processes.get(key).map(|row| row.program.filename.clone());
    if let Some(path) = path.filter(|path| path.starts_with('/')) {
        world.ask(Question::Program { path });
    }
    restart_changed(world, mark.at);
}

/// Notes that the OOM killer chose a daemon that has ended. The kernel reports that later.
pub(crate) fn daemon_oom_killed(world: &mut World, key: TaskKey) {
    let ended_at = world.processes.get(key).and_then(|row| match row.state {
        State::Running => None,
        State::Exited { at } => Some(at),
    });
    let ends = world.boot.recovery.restarts.open.iter_mut();
    let ends = ends.flat_map(|it| [&mut it.ended, &mut it.ended_again]).flatten();
    for it in ends.filter(|it| Some(it.at) == ended_at) {
        it.end = End { oom: true, killer: None, ..it.end };
    }
}

/// Notes that the kubelet listens at one of its ports.
pub(crate) fn listens(world: &mut World, at: Timestamp, key: TaskKey, port: u16) {
    let open = world.boot.recovery.restarts.open.iter_mut();
    let Some(restart) = open.into_iter().find(|it| it.process == Some(key)) else { return };
    let place = restart.listens.partition_point(|it| it.port < port);
    if restart.listens.get(place).is_none_or(|it| it.port != port) {
        restart.listens.insert(place, KubeletListens { port, at });
        restart_changed(world, at);
    }
}

/// Notes that a runtime does its work: it answered, or a program was run for a container. `by`: which one.
pub(crate) fn runtime_works(world: &mut World, mark: TimedSource, by: Option<&'static Runtime>) {
    let mut is_news = false;
    for it in world.boot.recovery.restarts.open.iter_mut().filter(|it| {
        it.daemon == Daemon::Runtime
            && it.started.is_some_and(|started| started.at <= mark.at)
            && is_work_of(by, &it.comm)
    }) {
        let before = it.answers;
        TimedSource::offer(&mut it.answers, mark);
        is_news |= before != it.answers;
    }
    if is_news {
        restart_changed(world, mark.at);
    }
}

/// Notes that a plugin has ended that the runtime called.
pub(crate) fn called(world: &mut World, at: Timestamp, call: &Call, end: Option<&End>) {
    if !world.boot.is_restarting() || !is_counted(call) {
        return;
    }
    let (signal, code) = end.map_or((None, 0), |end| (end.signal, end.code));
    let by = lookup::process::runtime_of(world, call.call.process.parent);
    let open = world.boot.recovery.restarts.open.iter_mut();
    for Restart { calls, .. } in open.filter(|it| is_its_call(by, it)) {
        let count = if signal.is_some() {
            &mut calls.killed
        } else if code != 0 {
            &mut calls.failed
        } else if at.since(call.at) >= HUNG {
            &mut calls.hung
        } else {
            continue;
        };
        *count = count.saturating_add(1);
    }
}

/// Has the open restarts looked at soon, since something happened that may be a part of one.
pub(crate) fn look_at_restarts(world: &mut World, at: Timestamp) {
    world.timers.arm_earlier(timer::Name::Restarts, at + SETTLE);
}

fn restart_changed(world: &mut World, at: Timestamp) {
    world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    look_at_restarts(world, at);
}

/// Looks at the restarts that go on.
pub(crate) fn due(world: &mut World, now: Timestamp) {
    for place in (0..world.boot.recovery.restarts.open.len()).rev() {
        if refresh(world, place, now) {
            world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
        }
        let Some(restart) = world.boot.recovery.restarts.open.get(place) else { continue };
        match closes(restart, now) {
            Ok(close) => close_restart(world, place, close, now),
            Err(due) => world.timers.arm_earlier(timer::Name::Restarts, due),
        }
    }
}

fn close_restart(world: &mut World, place: usize, close: RestartClose, now: Timestamp) {
    if place >= world.boot.recovery.restarts.open.len() {
        return;
    }
    let mut restart = world.boot.recovery.restarts.open.remove(place);
    (restart.close, restart.closed_at) = (Some(close), Some(now));
    let hung = world.calls.values().filter(|call| {
        is_counted(call)
            && now.since(call.at) >= HUNG
            && is_its_call(lookup::process::runtime_of(world, call.call.process.parent), &restart)
    });
    let hung = hung.count();
    restart.calls.hung = restart.calls.hung.saturating_add(u32::try_from(hung).unwrap_or(u32::MAX));
    let back = lookup::recovery::running_pods(world, now).pods;
    restart.less_network = less(
        &restart.before,
        back.iter().filter(|pod| restart.held.iter().any(|held| held.until.is_some() && held.pod.is(pod))),
    );
    restart.before.clear();
    let restarts = &mut world.boot.recovery.restarts;
    restarts.past.push(restart);
    if restarts.past.len() > KEPT {
        let first = restarts.past.remove(0);
        let count = restarts.left_out.entry(first.comm.clone()).or_default();
        *count = count.saturating_add(u32::from(first.has_started()));
    }
    world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
}

/// Finds out what has become of the pods. Returns whether anything is new.
fn refresh(world: &mut World, place: usize, now: Timestamp) -> bool {
    let Some(known) = world.boot.recovery.restarts.open.get(place) else { return false };
    let mut restart = known.clone();
    restart.is = restart.process.and_then(|key| Some(world.records.with_version(world.processes.get(key)?)));
    let named = restart.first_pod.filter(|first| first.pod.name.is_some());
    restart.first_pod = named.or_else(|| lookup::restart::first_pod(world, known));
    let found: Vec<HeldPod> = lookup::restart::held(world, known, now)
        .into_iter()
        .chain(lookup::restart::replaced(world, known))
        .collect();
    let mut left_out = 0_u32;
    for it in found {
        let Some(held) = restart.held.iter_mut().find(|held| held.pod.is(&it.pod)) else {
            if restart.held.len() < HELD {
                restart.held.push(it);
            } else {
                left_out = left_out.saturating_add(1);
            }
            continue;
        };
        if held.pod.name.is_none() {
            held.pod = it.pod.clone();
        }
        if it.replaced && !held.replaced {
            *held = HeldPod { since: held.since, ..it };
        } else if it.replaced == held.replaced {
            held.until = held.until.or(it.until);
        }
    }
    // A pod that was deleted waits no more.
    restart.held.retain(|held| held.until.is_some() || lookup::restart::is_here(world, &held.pod));
    restart.held.sort_by(|one, other| {
        (one.since, &one.pod.namespace, &one.pod.name).cmp(&(
            other.since,
            &other.pod.namespace,
            &other.pod.name,
        ))
    });
    restart.held_left_out = restart.held_left_out.max(left_out);
    let Some(known) = world.boot.recovery.restarts.open.get_mut(place) else { return false };
    let is_news = *known != restart;
    *known = restart;
    is_news
}

/// Whether a process that runs since then may have taken the place of the one that ended.
fn is_after(restart: &Restart, mark: TimedSource) -> bool {
    let ended = restart.ended_again.as_ref().or(restart.ended.as_ref());
    match ended {
        Some(ended) => mark.at + mark.source.precision() >= ended.at,
        None => mark.at > restart.ran_since,
    }
}

/// Returns why a restart is over; else when to look again.
fn closes(restart: &Restart, now: Timestamp) -> Result<RestartClose, Timestamp> {
    let Some(started) = restart.started else {
        let due = restart.noticed_at + WINDOW;
        return if now >= due { Ok(RestartClose::Stopped) } else { Err(due) };
    };
    let early = started.at + MOMENTS;
    let late = started.at + WINDOW;
    let is_held = restart.held.iter().any(|pod| pod.until.is_none());
    match restart.ready() {
        _ if now < early => Err(early),
        Some(_) if !is_held => Ok(RestartClose::AsBefore),
        Some(_) if now >= late => Ok(RestartClose::Waiting),
        None if now >= late => Ok(RestartClose::NotReady),
        Some(_) | None => Err(late.min(now + AGAIN)),
    }
}

/// Whether a plugin that this runtime called counts for this restart. While a kubelet restarts, those of all
/// runtimes do.
fn is_its_call(by: Option<&'static Runtime>, restart: &Restart) -> bool {
    restart.daemon == Daemon::Kubelet || is_work_of(by, &restart.comm)
}

/// Whether a call of a plugin is counted: the runtime made it, for more than the loopback.
fn is_counted(call: &Call) -> bool {
    call.top
        && call.call.ifname.as_deref() != Some("lo")
        && matches!(call.call.command.as_str(), "ADD" | "DEL")
}
