//! Restarts of only a runtime or the kubelet: quiet, in the middle of pods' starts, killed, in a loop,
//! unseen; and events that are not restarts.

use probe_common::event::class;

use super::{App, SECOND, booted, ms};
use crate::{
    engine::{
        Engine, Settings,
        boot::restart::{numbers, statistics},
        tests::{
            containerd::TOP,
            story::{
                DAEMON, KUBELET, Story, Who, call,
                run::{pass, take},
            },
        },
        world::{CheckpointEntry, react::restart::KEPT},
    },
    model::{
        fact::{
            Answer, ContainerFound, EventStream, Fact, List, NameSource, Origin, Role, RuntimeLink, SIGKILL,
            SIGTERM, Signaled,
        },
        id::TICK,
        recovery::{Calls, Daemon, KubeletListens, PreviousBoot, Recovery, Restart, RestartClose, Source},
        time::Timestamp,
    },
};

const INIT: Who = Who::new(1, 0, "systemd");

const KILLER: Who = Who::new(700, 1, "demo");
/// The time after which a restart with no effects counts as over.
const OVER: u64 = 130 * SECOND;

/// The process of a daemon that begins at this time, in ms.
fn at(comm: &'static str, began: u64) -> Who {
    Who::new(u32::try_from(began * 1_000_000 / TICK).expect("a pid"), 1, comm)
}

fn begin(story: &mut Story, comm: &'static str, began: u64) -> Who {
    let who = at(comm, began);
    story.at(began).exec(who, class::CALLER, &format!("/usr/bin/{comm}"));
    who
}

fn shim(app: &App) -> (Who, String) {
    let line = format!("/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id {} start", app.id(1));
    (Who::new(30_000 + app.0, DAEMON.pid, "containerd-shim"), line)
}

fn recovery(story: &Story, until: u64) -> Recovery {
    story.judge(until).1.recovery().clone()
}

/// The only restart.
fn restart(story: &Story, until: u64) -> Restart {
    let all = recovery(story, until).restarts;
    match all.all().as_slice() {
        [only] => (*only).clone(),
        other => panic!("{other:#?}"),
    }
}

/// The columns, in ms.
fn columns(restart: &Restart) -> [Option<i64>; 4] {
    numbers(restart).columns.map(|number| number.map(|it| it.ns / 1_000_000))
}

/// `systemctl restart`, of a runtime that answers 2 s later.
fn restarted(story: &mut Story, old: Who, began: u64) -> Who {
    story.at(began - 100).kill(INIT, old, SIGTERM);
    story.at(began).exit(old, class::CALLER, 0);
    let new = begin(story, old.comm, began + 500);
    answers(story.at(began + 2000), "/run/containerd/containerd.sock");
    new
}

fn answers(story: &mut Story, socket: &str) {
    let (answer, events) = (Answer::Answers, EventStream::Open);
    story.say(
        Origin::Cri,
        Fact::RuntimeLink(RuntimeLink { socket: socket.to_owned(), answer, events, since: None }),
    );
}

#[test]
fn a_quiet_restart_costs_the_time_until_the_runtime_answers() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    restarted(&mut story, DAEMON, 100 * SECOND);
    let open = restart(&story, 103 * SECOND);
    assert_eq!((open.close, open.held.len()), (None, 0));
    let found = restart(&story, 100 * SECOND + OVER);
    assert_eq!(columns(&found), [Some(500), Some(2000), None, Some(2000)]);
    assert_eq!((found.daemon, found.close), (Daemon::Runtime, Some(RestartClose::AsBefore)));
    assert_eq!((found.was.as_str(), found.is.as_deref()), ("containerd", Some("containerd")));
    assert_eq!(
        (found.held.as_slice(), found.calls, found.first_pod.as_ref()),
        (&[][..], Calls::default(), None)
    );
    assert_eq!(found.answers.map(|mark| mark.source), Some(Source::Cri));
    let ended = found.ended.expect("an end");
    assert_eq!((ended.end.code, ended.end.signal, ended.at), (0, None, ms(100 * SECOND)));
    let told = ended.told.expect("a signal");
    assert_eq!((told.signal, told.by.comm.as_str(), told.by.key.pid), (SIGTERM, "systemd", 1));
}

#[test]
fn a_daemon_that_is_down_is_among_the_programs_of_its_finding() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    story.at(100 * SECOND).exit(DAEMON, class::CALLER, 0);
    let (lines, engine) = story.judge(230 * SECOND);
    let down = engine.findings().find(|it| it.key.as_str() == "daemon_failing/containerd").expect(&lines);
    let programs: Vec<&str> = down.programs.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(programs, ["/usr/bin/containerd", "/usr/bin/kubelet"]);
}

#[test]
fn a_restart_in_a_burst_shows_which_starts_waited_and_for_how_long() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    App(2).begin(&mut story, 99 * SECOND);
    // Its ADD hangs, and is killed when the runtime is long gone.
    let add = 5000 + 2 * 100 + 1;
    let mut it = call(add, DAEMON.pid, "/usr/lib/cni/flannel", "ADD", "/run/netns/x", 'a');
    it.variables.container_id = Some(App(2).id(1).as_str().to_owned());
    it.variables.args = None;
    story.at(99 * SECOND + 500).kernel(Fact::CniCalled(it));
    story.at(100 * SECOND - 1).kill(KILLER, DAEMON, SIGKILL);
    story.at(100 * SECOND).exit(DAEMON, class::CALLER, SIGKILL);
    story.at(101 * SECOND).exit(Who::new(add, DAEMON.pid, "flannel"), class::CNI, SIGKILL);
    // The kubelet makes another pod's cgroup, and nobody makes its sandbox.
    story.at(102 * SECOND).mkdir(300, &App(3).path());
    begin(&mut story, "containerd", 105 * SECOND);
    let (who, line) = shim(&App(3));
    story.at(106 * SECOND).exec(who, class::RUNTIME, &line);
    App(2).run(&mut story, 107 * SECOND, 2, "main");
    story.at(108 * SECOND).mkdir(301, &format!("{}/{}", App(3).path(), App(3).id(1)));
    App(3).found(&mut story, 1, "");
    story.exec(App(3).who(1, "pause"), TOP | class::PAUSE, "/pause");
    let open = restart(&story, 108 * SECOND + 500);
    assert_eq!(numbers(&open).whole(), None, "a pod waits: {open:#?}");
    App(3).run(&mut story, 109 * SECOND, 2, "main");
    let found = restart(&story, 105 * SECOND + OVER);
    assert_eq!(columns(&found), [Some(5000), Some(6000), Some(7000), Some(9000)]);
    let periods = numbers(&found).periods.map(|number| number.map(|it| it.ns / 1_000_000));
    assert_eq!(periods, [Some(5000), Some(1000), Some(1000), Some(2000)]);
    let held: Vec<_> = found.held.iter().map(|it| (it.pod.name.as_deref(), it.since, it.until)).collect();
    let of = |name, since, until| (Some(name), ms(since), Some(ms(until)));
    assert_eq!(held, [of("app-2", 100_000, 107_000), of("app-3", 102_000, 109_000)]);
    assert_eq!(found.first_pod.and_then(|it| it.pod.name).as_deref(), Some("app-2"));
    assert_eq!(found.calls, Calls { cut_off: 1, killed: 1, failed: 0, hung: 0 });
    let ended = found.ended.expect("an end").end;
    assert_eq!((ended.signal, ended.killer.map(|it| it.comm)), (Some(SIGKILL), Some("demo".to_owned())));
}

/// A pod that had begun long before waits for something else, such as an image that does not exist. A deleted
/// pod no longer waits.
#[test]
fn what_waits_for_something_else_does_not_keep_a_restart_open() {
    let mut story = booted(PreviousBoot::default());
    App(1).begin(&mut story, 20 * SECOND);
    App(2).begin(&mut story, 399 * SECOND);
    restarted(&mut story, DAEMON, 400 * SECOND);
    let open = restart(&story, 400 * SECOND + OVER);
    let held: Vec<_> = open.held.iter().filter_map(|it| it.pod.name.as_deref()).collect();
    assert_eq!((open.close, held), (None, vec!["app-2"]));
    story.at(540 * SECOND).exit(App(2).who(1, "pause"), TOP, 0);
    story.at(541 * SECOND).rmdir(201, &format!("{}/{}", App(2).path(), App(2).id(1)));
    story.at(542 * SECOND).rmdir(200, &App(2).path());
    let found = restart(&story, 700 * SECOND);
    assert_eq!((found.close, found.held.as_slice()), (Some(RestartClose::AsBefore), &[][..]));
    let late = {
        let mut story = booted(PreviousBoot::default());
        App(2).begin(&mut story, 99 * SECOND);
        restarted(&mut story, DAEMON, 100 * SECOND);
        restart(&story, 3600 * SECOND)
    };
    assert_eq!((late.close, late.held.len()), (Some(RestartClose::Waiting), 1));
}

#[test]
fn the_out_of_memory_killer_is_named_though_it_is_reported_later() {
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exit(DAEMON, class::CALLER, SIGKILL);
    let (target, sender) = (DAEMON.task(), KILLER.task());
    story.kernel(Fact::OomKilled(Signaled { target, signal: SIGKILL, code: 0, sender }));
    begin(&mut story, "containerd", 101 * SECOND);
    let ended = restart(&story, 110 * SECOND).ended.expect("an end").end;
    assert_eq!((ended.oom, ended.killer), (true, None));
}

#[test]
fn a_kubelet_that_restarts_with_nothing_lost_is_ready_when_it_listens() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    story.at(100 * SECOND).exit(KUBELET, class::CALLER, 0x100);
    let new = begin(&mut story, "kubelet", 110 * SECOND);
    // A port of another program, and one in a container, are not the kubelet's.
    story.at(110 * SECOND + 500).listen(App(1).who(2, "kubelet"), 102, 10_250);
    story.at(111 * SECOND).listen(new, 0, 10_250).listen(new, 0, 10_255);
    story.at(112 * SECOND).listen(new, 0, 10_248);
    let found = restart(&story, 110 * SECOND + OVER);
    assert_eq!(columns(&found), [Some(10_000), Some(12_000), None, Some(12_000)]);
    assert_eq!((found.daemon, found.close), (Daemon::Kubelet, Some(RestartClose::AsBefore)));
    assert_eq!(found.held, []);
    let listens = |port, at| KubeletListens { port, at: ms(at) };
    assert_eq!(found.listens, [listens(10_248, 112_000), listens(10_250, 111_000), listens(10_255, 111_001)]);
    assert_eq!(found.ended.map(|it| (it.end.code, it.told)), Some((1, None)));
}

#[test]
fn a_kubelet_in_a_crash_loop_is_one_restart() {
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exit(KUBELET, class::CALLER, 0x100);
    for n in 1..=300 {
        let began = (100 + 10 * n) * SECOND;
        let who = begin(&mut story, "kubelet", began);
        // It listens, and ends nevertheless.
        story.at(began + 500).listen(who, 0, 10_248);
        story.at(began + 2000).exit(who, class::CALLER, 0x200);
    }
    let open = restart(&story, 3110 * SECOND);
    assert_eq!((open.again, open.close, columns(&open)), (300, None, [None; 4]));
    assert_eq!(open.ended_again.as_ref().map(|it| it.end.code), Some(2));
    let last = begin(&mut story, "kubelet", 3120 * SECOND);
    story.at(3121 * SECOND).listen(last, 0, 10_248);
    let found = restart(&story, 3120 * SECOND + OVER);
    assert_eq!((found.again, found.close), (300, Some(RestartClose::AsBefore)));
    assert_eq!(columns(&found), [Some(3_020_000), Some(3_021_000), None, Some(3_021_000)]);
}

#[test]
fn only_the_last_restarts_are_kept_and_all_are_counted() {
    let mut story = booted(PreviousBoot::default());
    let (mut old, excess) = (DAEMON, 8);
    let count = u64::try_from(KEPT + excess).expect("few");
    for n in 1..=count {
        old = restarted(&mut story, old, 200 * n * SECOND);
    }
    let all = recovery(&story, 200 * (count + 1) * SECOND).restarts;
    assert_eq!((all.past.len(), all.open.len()), (KEPT, 0));
    assert_eq!(
        all.counts().into_iter().collect::<Vec<_>>(),
        [("containerd", u32::try_from(count).expect("few"))]
    );
    assert_eq!(
        all.past.first().map(Restart::zero),
        Some(ms(200 * (u64::try_from(excess).expect("few") + 1) * SECOND))
    );
    let of = statistics(all.all().into_iter());
    let [of] = of.as_slice() else { panic!("{of:?}") };
    assert_eq!(
        (of.all, of.average.boots, of.average.numbers.whole().map(|it| it.ns)),
        (KEPT, KEPT, Some(2_000_000_000))
    );
    assert_eq!(of.spread.len(), 4);
}

/// Two runtimes serve pods of the node.
#[test]
fn what_another_runtime_does_shows_nothing_of_the_one_that_restarts() {
    let mut story = booted(PreviousBoot::default());
    let crio = begin(&mut story, "crio", 30 * SECOND);
    // A plugin that containerd called runs meanwhile, and fails later.
    let add = call(5001, DAEMON.pid, "/usr/lib/cni/flannel", "ADD", "/run/netns/x", 'a');
    story.at(99 * SECOND).kernel(Fact::CniCalled(add));
    story.at(100 * SECOND).exit(crio, class::CALLER, 0);
    begin(&mut story, "crio", 101 * SECOND);
    let (who, line) = shim(&App(3));
    story.at(102 * SECOND).exec(who, class::RUNTIME, &line);
    answers(story.at(103 * SECOND), "/run/containerd/containerd.sock");
    story.at(104 * SECOND).exit(Who::new(5001, DAEMON.pid, "flannel"), class::CNI, 0x100);
    assert_eq!(columns(&restart(&story, 105 * SECOND)), [Some(1000), None, None, None]);
    answers(story.at(106 * SECOND), "/run/crio/crio.sock");
    let found = restart(&story, 101 * SECOND + OVER);
    assert_eq!((columns(&found)[1], found.calls), (Some(6000), Calls::default()));
}

/// `ctr` and a shim are programs of the runtime, and so is the daemon's own program when asked for its
/// version.
#[test]
fn the_end_of_another_program_is_no_restart() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    let others = [("containerd-shim", class::RUNTIME), ("ctr", class::RUNTIME), ("runc", class::RUNTIME)];
    for (n, (comm, bits)) in (0..).zip(others) {
        let who = Who::new(9100 + n, 1, comm);
        story.at((91 + u64::from(n)) * SECOND).exec(who, bits, &format!("/usr/bin/{comm}"));
        story.at((120 + u64::from(n)) * SECOND).exit(who, bits, SIGKILL);
    }
    let query = begin(&mut story, "kubelet", 130 * SECOND);
    story.at(130 * SECOND + 50).exit(query, class::CALLER, 0);
    // A program of any user, and one in a pod.
    let forged = Who::new(9200, 1, "containerd");
    story.at(131 * SECOND).exec(forged, 0, "/home/user/containerd");
    story.at(160 * SECOND).exit(forged, 0, 0);
    let inner = Who::new(9201, 1, "containerd").within(102, 5);
    story.at(161 * SECOND).exec(inner, class::CALLER | class::IN_CONTAINER, "/usr/bin/containerd");
    story.at(190 * SECOND).exit(inner, class::CALLER | class::IN_CONTAINER, 0);
    assert_eq!(recovery(&story, 400 * SECOND).restarts.all(), Vec::<&Restart>::new());

    // A query does not count as a start, and does not hide one.
    story.at(500 * SECOND).exit(KUBELET, class::CALLER, 0);
    let query = begin(&mut story, "kubelet", 501 * SECOND);
    let long = begin(&mut story, "kubelet", 502 * SECOND);
    story.at(503 * SECOND).exit(query, class::CALLER, 0).at(504 * SECOND).exit(long, class::CALLER, 0);
    let query = begin(&mut story, "kubelet", 505 * SECOND);
    let new = begin(&mut story, "kubelet", 505 * SECOND + 10);
    story.at(505 * SECOND + 60).exit(query, class::CALLER, 0);
    story.at(506 * SECOND).listen(new, 0, 10_248);
    let found = restart(&story, 500 * SECOND + 2 * OVER);
    assert_eq!((columns(&found)[0], found.again, found.close), (Some(5010), 0, Some(RestartClose::AsBefore)));
}

#[test]
fn a_daemon_that_is_stopped_or_ends_with_the_node_is_reported_as_such() {
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exit(KUBELET, class::CALLER, 0);
    let stopped = restart(&story, 3600 * SECOND);
    assert_eq!((stopped.close, columns(&stopped)), (Some(RestartClose::Stopped), [None; 4]));
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exec(Who::new(800, 1, "systemctl"), class::ORDER, "systemctl reboot");
    story.at(103 * SECOND).exit(KUBELET, class::CALLER, 0).exit(DAEMON, class::CALLER, 0);
    assert_eq!(recovery(&story, 104 * SECOND).restarts.all(), Vec::<&Restart>::new());
    // Without a sign that it is ready, nothing is reported about it.
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exit(DAEMON, class::CALLER, 0);
    begin(&mut story, "containerd", 101 * SECOND);
    let unknown = restart(&story, 3600 * SECOND);
    assert_eq!(
        (unknown.close, columns(&unknown)),
        (Some(RestartClose::NotReady), [Some(1000), None, None, None])
    );
    assert_eq!(statistics([&unknown].into_iter())[0].average.boots, 0);
}

/// Another agent lists the node: the runtime that it knew is gone, and another one runs.
#[test]
fn a_restart_that_no_agent_saw_counts_from_the_new_start() {
    let mut story = booted(PreviousBoot::default());
    let new = at("containerd", 100 * SECOND);
    let list = |story: &mut Story, daemon: Who| {
        story.list(List::Processes, true, |story| {
            story.found(KUBELET, KUBELET.pid, "/system.slice/kubelet.service", "/usr/bin/kubelet");
            story.found(daemon, daemon.pid, "/system.slice/containerd.service", "/usr/bin/containerd");
        });
    };
    list(story.at(90 * SECOND), DAEMON);
    story.at(199 * SECOND).say(Origin::Agent, Fact::AgentAway { since: ms(95 * SECOND) });
    list(story.at(200 * SECOND), new);
    let (who, line) = shim(&App(3));
    story.at(203 * SECOND).exec(who, class::RUNTIME, &line);
    let found = restart(&story, 200 * SECOND + OVER);
    assert_eq!((found.ended.as_ref(), found.close), (None, Some(RestartClose::AsBefore)));
    assert_eq!(found.started.map(|mark| mark.source), Some(Source::ProcStart));
    assert!(numbers(&found).columns[0].is_some_and(|it| it.is_inexact));
    assert_eq!(columns(&found), [Some(0), Some(103_000), None, Some(103_000)]);
    assert_eq!(statistics([&found].into_iter())[0].average.boots, 0, "its beginning is not known");
}

/// An agent that has only the history of this boot goes on with a restart that the one before saw begin.
#[test]
fn the_history_of_the_boot_is_enough_to_go_on() {
    let mut story = booted(PreviousBoot::default());
    story.at(100 * SECOND).exit(DAEMON, class::CALLER, 0);
    let earlier = recovery(&story, 101 * SECOND);
    let mut later = Story::new();
    later.restored.push(CheckpointEntry::Recovery(Box::new(earlier)));
    later.at(110 * SECOND).say(Origin::Agent, Fact::BootRead(Box::default()));
    let new = at("containerd", 105 * SECOND);
    later.list(List::Processes, true, |story| {
        story.found(new, new.pid, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    let (who, line) = shim(&App(3));
    later.at(112 * SECOND).exec(who, class::RUNTIME, &line);
    let found = restart(&later, 105 * SECOND + OVER);
    assert_eq!(columns(&found), [Some(5000), Some(12_000), None, Some(12_000)]);
    assert_eq!(found.close, Some(RestartClose::AsBefore));
}

/// The sandboxes of pods that ran are replaced: one of them comes back without its second interface.
#[test]
fn replaced_sandboxes_belong_to_the_restart() {
    let story = replaced();
    let found = restart(&story, 100 * SECOND + 2 * OVER);
    let held: Vec<_> =
        found.held.iter().map(|it| (it.pod.name.as_deref(), it.replaced, it.since, it.until)).collect();
    assert_eq!(held, [(Some("app-1"), true, ms(103_000), Some(ms(106_000)))]);
    assert_eq!(columns(&found), [Some(500), Some(2000), Some(6000), Some(6000)]);
    let less: Vec<_> =
        found.less_network.iter().map(|it| (it.pod.name.as_deref(), it.missing.clone())).collect();
    assert_eq!(less, [(Some("app-1"), vec!["net1".to_owned()])]);
    assert_eq!(found.before, [], "only while it goes on");
}

/// A runtime restarts and replaces the sandbox of a pod.
fn replaced() -> Story {
    let mut story = booted(PreviousBoot::default());
    let attach = |story: &mut Story, at: u64, n: u32, ifname: &str, pid: u32, command: &str| {
        let mut it = call(pid, DAEMON.pid, "/usr/lib/cni/flannel", command, "/run/netns/x", 'a');
        it.variables.container_id = Some(App(1).id(n).as_str().to_owned());
        it.variables.ifname = Some(ifname.to_owned());
        it.variables.args = None;
        story.at(at).kernel(Fact::CniCalled(it));
        story.at(at + 50).exit(Who::new(pid, DAEMON.pid, "flannel"), class::CNI, 0);
    };
    App(1).begin(&mut story, 18 * SECOND);
    attach(&mut story, 18 * SECOND + 100, 1, "eth0", 5001, "ADD");
    attach(&mut story, 18 * SECOND + 200, 1, "net1", 5002, "ADD");
    App(1).run(&mut story, 20 * SECOND, 2, "main");
    restarted(&mut story, DAEMON, 100 * SECOND);
    attach(&mut story, 103 * SECOND, 1, "eth0", 5003, "DEL");
    story.at(103 * SECOND + 500).exit(App(1).who(2, "app"), TOP, 0);
    story.at(103 * SECOND + 600).exit(App(1).who(1, "pause"), TOP | class::PAUSE, 0);
    // This pod, with other containers.
    let path = App(1).path();
    let made = |story: &mut Story, n: u32, sandbox: u32, comm: &'static str, bits: u32| {
        story.mkdir(u64::from(100 + n), &format!("{path}/{}", App(1).id(n)));
        let role = if n == sandbox { Role::Sandbox } else { Role::Container };
        story.listed(Fact::ContainerFound(ContainerFound {
            id: App(1).id(n),
            role,
            sandbox: Some(App(1).id(sandbox)),
            name: (n != sandbox).then(|| "main".to_owned()),
            pod: Some(App(1).name()),
            source: NameSource::Bundle,
            started: None,
        }));
        story.exec(App(1).who(n, comm), bits, "/bin/x");
    };
    made(story.at(104 * SECOND), 11, 11, "pause", TOP | class::PAUSE);
    attach(&mut story, 104 * SECOND + 500, 11, "eth0", 5004, "ADD");
    made(story.at(106 * SECOND - 2), 12, 11, "app", TOP);
    story
}

/// The state of restarts is used only for their table: an engine that repeatedly forgets it reports
/// everything else alike.
#[test]
fn no_finding_depends_on_what_is_known_of_restarts() {
    let story = replaced();
    let run = |forgets: bool| {
        let mut engine = Engine::new(Settings::default());
        let mut lines = Vec::new();
        let mut last = 0;
        for seen in &story.facts {
            pass(&mut engine, Timestamp(seen.at.0.saturating_sub(1)));
            engine.observe(seen.clone());
            lines.extend(take(&mut engine));
            if forgets {
                engine = forgetful(&engine);
            }
            last = seen.at.0;
        }
        for later in 1..200 {
            pass(&mut engine, Timestamp(last + later * 5_000_000_000));
            lines.extend(take(&mut engine));
        }
        // For a daemon that comes back, its version is asked for, and whether it answers.
        let asks = lines.iter().filter(|line| *line == "? statuses").count();
        lines.retain(|line| !line.starts_with("? program") && line != "? statuses");
        (lines, engine.recovery().restarts.clone(), asks)
    };
    let (kept, restarts, asked) = run(false);
    let (forgotten, none, asked_less) = run(true);
    assert_eq!(kept, forgotten);
    assert!(asked > asked_less, "nobody asks whether the runtime answers");
    assert!(kept.iter().any(|line| line.contains("finding.confirmed")), "{kept:#?}");
    assert_eq!((restarts.all().len(), none.all().len()), (1, 0));
}

/// This engine without its state of restarts.
pub(in crate::engine::tests) fn forgetful(engine: &Engine) -> Engine {
    let mut fresh = Engine::new(engine.settings().clone());
    for mut entry in engine.dump() {
        if let CheckpointEntry::Recovery(recovery) = &mut entry {
            recovery.restarts = Default::default();
        }
        fresh.restore(entry);
    }
    fresh
}
