//! What a runtime believes, compared with what the kernel shows.

mod described;
mod on_record;
mod several;

use std::time::Duration;

use probe_common::event::class;

use super::{
    containerd::{self, PAUSE, TOP},
    story::{
        CONTAINERD, DAEMON, KUBELET, POD_NETNS, SHIM, Story, UID, Who, cgroup, id, key, leaf, ms, pod_name,
        run::{feed, pass, settle},
        uid,
    },
};
use crate::{
    engine::{Engine, LagBy, LagOf, Settings, world::CheckpointEntry},
    model::{
        fact::{
            Answer, Believed, Described, EventStream, Fact, List, NameSource, Origin, ProcessState, Role,
            RunState, RuntimeEvent, RuntimeEventKind, RuntimeLink, RuntimeStatus, Stated, ThreadState,
        },
        finding::{Explain, Kind, Severity, Stage},
        time::Timestamp,
    },
};

const SLEEP: Who = Who::new(693, SHIM, "sleep").within(22, POD_NETNS);
const SECOND: u64 = 1000;
const SOCKET: &str = "/run/containerd/containerd.sock";

impl Story {
    fn link(&mut self, answer: Answer, events: EventStream) -> &mut Self {
        let it = RuntimeLink { socket: SOCKET.to_owned(), answer, events, since: None };
        self.say(Origin::Cri, Fact::RuntimeLink(it))
    }

    /// The runtime's whole list.
    fn states(&mut self, came: &[(char, Believed)]) -> &mut Self {
        let came = came.iter().map(|(digit, state)| stated(*digit, *state, None)).collect();
        self.status(came)
    }

    fn status(&mut self, came: Vec<Stated>) -> &mut Self {
        let it = RuntimeStatus { socket: SOCKET.to_owned(), whole: true, came, gone: Vec::new() };
        self.say(Origin::Cri, Fact::RuntimeStatus(it))
    }

    fn tells(&mut self, digit: char, what: RuntimeEventKind) -> &mut Self {
        let it = RuntimeEvent { socket: SOCKET.to_owned(), id: id(digit), what };
        self.say(Origin::Cri, Fact::RuntimeEvent(it))
    }
}

fn stated(digit: char, state: Believed, exit_code: Option<i32>) -> Stated {
    let role = if digit == 'a' { Role::Sandbox } else { Role::Container };
    let sandbox = (digit != 'a').then(|| id('a'));
    let described = Described::default();
    Stated { id: id(digit), role, sandbox, state, made_at: Timestamp(1), exit_code, described }
}

/// A pod whose container runs, on a node that is followed over CRI.
fn running(events: EventStream) -> Story {
    let mut story = Story::new();
    story.at(1).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
    });
    story.link(Answer::Answers, EventStream::None).states(&[]);
    containerd::start(&mut story);
    story.at(90).on_record(&['a']);
    containerd::run(&mut story);
    if events == EventStream::Open {
        story.tells('a', RuntimeEventKind::Started).tells('c', RuntimeEventKind::Started);
    }
    story.link(Answer::Answers, events);
    story.states(&[('a', Believed::Running), ('c', Believed::Running)]);
    story.until(5 * SECOND);
    story
}

const BOTH: [(char, Believed); 2] = [('a', Believed::Running), ('c', Believed::Running)];
const ENDED: [(char, Believed); 2] = [('a', Believed::Running), ('c', Believed::Exited)];

fn told(story: &Story) -> Vec<String> {
    const KINDS: [&str; 5] = [
        "stale_runtime_status/",
        "phantom_sandbox/",
        "missed_runtime_event/",
        "runtime_unresponsive/",
        "blind_spot/cri",
    ];
    let is_told = |line: &String| KINDS.iter().any(|kind| line.contains(kind)) || line == "? statuses";
    let lines = story.run().into_iter().filter(is_told);
    let mut engine = Engine::new(Settings::default());
    for seen in &story.facts {
        // Earlier kernel records have been processed.
        pass(&mut engine, Timestamp(seen.at.0 - 1));
        engine.observe(seen.clone());
        while engine.poll().is_some() {}
        assert_eq!(engine.differences(), [""; 0], "after {seen:?}");
        while engine.poll().is_some() {}
    }
    lines.map(|line| line.replace(id('a').as_str(), "a").replace(id('c').as_str(), "c")).collect()
}

fn dies(story: &mut Story, status: u32) {
    story.exit(SLEEP, TOP, status);
    story.emptied(22, &leaf('c'));
}

#[test]
fn a_runtime_that_does_not_notice_a_death_is_asked_twice_and_reported() {
    let mut story = running(EventStream::None);
    dies(&mut story, 9);
    story.until(6_500).states(&BOTH).until(15_500).states(&BOTH).until(30 * SECOND);
    story.states(&ENDED).until(32 * SECOND).moment();
    assert_eq!(
        told(&story),
        [
            "? statuses",
            "? statuses",
            "15599 finding.opened stale_runtime_status/c [default/web-0 a] Agent",
            "15599 finding.confirmed stale_runtime_status/c [default/web-0 a] Agent",
            "30099 finding.closed stale_runtime_status/c [default/web-0 a] Agent",
        ]
    );
}

#[test]
fn a_runtime_that_notices_is_asked_once_at_most() {
    let mut story = running(EventStream::None);
    dies(&mut story, 9);
    story.until(6_500).states(&ENDED).until(300 * SECOND).moment();
    assert_eq!(told(&story), ["? statuses"]);
    let mut story = running(EventStream::Open);
    dies(&mut story, 9);
    story
        .tells('c', RuntimeEventKind::Stopped)
        .until(60 * SECOND)
        .states(&ENDED)
        .until(300 * SECOND)
        .moment();
    assert_eq!(told(&story), [""; 0]);
}

/// Each death is noticed, and the next one begins in another container.
#[test]
fn a_crash_loop_is_no_contradiction() {
    let mut story = running(EventStream::None);
    dies(&mut story, 256);
    story.until(6_500).states(&ENDED);
    for (turn, digit) in (1_u64..).zip(['d', 'e', 'f']) {
        let number = 30 + turn;
        let again =
            Who::new(800 + u32::try_from(turn).expect("small"), SHIM, "sleep").within(number, POD_NETNS);
        story.until(turn * 60 * SECOND);
        story.container(digit, Role::Container, 'a', "main").mkdir(number, &leaf(digit));
        story.exec(again, TOP, "/bin/sleep 1000").until(turn * 60 * SECOND + 500).exit(again, TOP, 256);
        story.emptied(number, &leaf(digit)).until(turn * 60 * SECOND + 3_000);
        story.states(&[('a', Believed::Running), (digit, Believed::Exited)]);
    }
    story.until(400 * SECOND).moment();
    let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
    assert_eq!(findings, [""; 0]);
}

#[test]
fn a_process_that_outlives_its_runtimes_belief_is_reported() {
    let mut story = running(EventStream::None);
    story.states(&ENDED).until(10 * SECOND).states(&ENDED).until(20 * SECOND).states(&ENDED);
    story.until(30 * SECOND);
    dies(&mut story, 0);
    story.until(32 * SECOND).moment();
    assert_eq!(
        told(&story),
        [
            "20099 finding.opened stale_runtime_status/c [default/web-0 a] Agent",
            "20099 finding.confirmed stale_runtime_status/c [default/web-0 a] Agent",
            "30099 finding.closed stale_runtime_status/c [default/web-0 a] Agent",
            "? statuses",
        ]
    );
}

#[test]
fn another_exit_code_is_reported_and_the_same_is_not() {
    for (code, is_other) in [(137, false), (255, true), (-1, true)] {
        let mut story = running(EventStream::None);
        dies(&mut story, 9);
        let states = || vec![stated('a', Believed::Running, None), stated('c', Believed::Exited, Some(code))];
        story.until(6_500).status(states()).until(70 * SECOND).status(states()).until(75 * SECOND).moment();
        let lines = told(&story);
        let found = lines.iter().filter(|line| line.contains(" stale_runtime_status/")).count();
        assert_eq!((lines.len(), found), if is_other { (3, 2) } else { (1, 0) }, "{code}");
    }
}

/// SIGSTOP of the runtime for 20 s, with a death in it.
#[test]
fn a_runtime_that_hangs_for_a_moment_costs_nothing() {
    for events in [EventStream::None, EventStream::Open] {
        let mut story = running(events);
        dies(&mut story, 9);
        story.until(8 * SECOND).link(Answer::Hangs, events).until(26 * SECOND);
        story.link(Answer::Answers, events).states(&BOTH).states(&ENDED);
        if events == EventStream::Open {
            story.tells('c', RuntimeEventKind::Stopped);
        }
        story.until(60 * SECOND).states(&ENDED).until(70 * SECOND).moment();
        let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
        assert_eq!(findings, [""; 0]);
    }
}

/// A runtime that answers too slowly, or whose socket the agent may not use, may serve its kubelet well.
#[test]
fn a_runtime_whose_list_cannot_be_read_is_a_blind_spot() {
    for answer in [Answer::Slow, Answer::Unreachable, Answer::Gone] {
        let mut story = running(EventStream::Open);
        story.until(200 * SECOND).link(answer, EventStream::Open).until(260 * SECOND);
        story.link(Answer::Answers, EventStream::Open).states(&BOTH).until(270 * SECOND).moment();
        let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
        assert_eq!(
            findings,
            [
                "210000 finding.opened blind_spot/cri/:run:containerd:containerd.sock Agent",
                "210000 finding.confirmed blind_spot/cri/:run:containerd:containerd.sock Agent",
                "260099 finding.closed blind_spot/cri/:run:containerd:containerd.sock Agent",
            ]
        );
    }
}

#[test]
fn a_runtime_that_has_ended_has_no_list_that_could_not_be_read() {
    let mut story = running(EventStream::Open);
    story.until(200 * SECOND).exit(DAEMON, class::CALLER, 0);
    story.link(Answer::Gone, EventStream::Closed).until(510 * SECOND);
    let (lines, engine) = story.judge(510 * SECOND);
    assert!(!lines.contains("blind_spot/cri"), "{lines}");
    let down = engine.findings().find(|it| it.key.as_str() == "daemon_failing/containerd").expect(&lines);
    assert_eq!((down.stage, down.since), (Stage::Confirmed, ms(200 * SECOND)));

    let again = Who::new(51_000, 1, "containerd");
    story.exec(again, class::CALLER, "/usr/bin/containerd").until(518 * SECOND);
    let mut quick = story.clone();
    quick.link(Answer::Answers, EventStream::Open).states(&BOTH).until(540 * SECOND).moment();
    assert!(!quick.judge(540 * SECOND).0.contains("blind_spot/cri"));
    story.until(540 * SECOND).moment();
    let lines = story.judge(540 * SECOND).0;
    assert!(lines.contains("finding.confirmed blind_spot/cri/:run:containerd:containerd.sock"), "{lines}");
}

/// SIGSTOP of the runtime. It is asked again every 15 s, and a pod is to start meanwhile.
fn stopped_runtime() -> Story {
    let mut story = running(EventStream::Open);
    story.until(200 * SECOND).link(Answer::Hangs, EventStream::Open);
    let threads = vec![ThreadState {
        state: RunState::Stopped,
        function: Some("do_signal_stop".to_owned()),
        count: 12,
    }];
    let process = DAEMON.task().key;
    story.listed(Fact::ProcessState(ProcessState { process, state: RunState::Stopped, threads }));
    story.until(212 * SECOND).mkdir(77, "/kubepods/pod99999999-2222-3333-4444-555555555555");
    for again in [215, 231, 246] {
        story.until(again * SECOND).link(Answer::Hangs, EventStream::Open);
    }
    story
}

#[test]
fn a_runtime_that_answers_nothing_is_reported_with_what_its_process_does() {
    let mut story = stopped_runtime();
    let (lines, engine) = story.judge(250 * SECOND);
    let key = "runtime_unresponsive/:run:containerd:containerd.sock";
    let finding = engine.findings().find(|it| it.key.as_str() == key).expect(&lines);
    let Kind::RuntimeUnresponsive(it) = &finding.kind else { panic!("{lines}") };
    assert_eq!((finding.stage, finding.severity), (Stage::Confirmed, Severity::Critical));
    assert_eq!((finding.since, it.pods), (ms(200 * SECOND), 1));
    assert_eq!(
        it.summary(),
        "the runtime at /run/containerd/containerd.sock answers nothing: its process containerd[564] is stopped by a \
         signal, 12 threads stopped in do_signal_stop; 1 pod waits for it: 99999999-2222-3333-4444-555555555555"
    );
    assert!(it.repair(&[], &[]).contains(&"kill -CONT 564".to_owned()));

    story.until(250 * SECOND).link(Answer::Answers, EventStream::Open).states(&BOTH);
    story.until(260 * SECOND).moment();
    let lines = told(&story);
    let told: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once(' ')).map(|(_, what)| what).collect();
    let expected = ["opened", "confirmed", "closed"].map(|what| format!("finding.{what} {key} Agent"));
    assert_eq!(told.into_iter().filter(|what| *what != "statuses").collect::<Vec<_>>(), expected);
}

/// The agent did not run, so nothing shows that the runtime still hung when the limit was over.
#[test]
fn a_runtime_that_was_not_asked_again_is_not_reported() {
    let mut story = running(EventStream::Open);
    story.until(200 * SECOND).link(Answer::Hangs, EventStream::Open).until(300 * SECOND);
    story.link(Answer::Answers, EventStream::Open).states(&BOTH).until(310 * SECOND).moment();
    let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
    assert_eq!(findings, [""; 0]);
}

/// A restart: nobody listens for a moment, and the events of that time are never reported.
#[test]
fn a_runtime_that_restarts_misses_no_event() {
    let mut story = running(EventStream::Open);
    story.link(Answer::Gone, EventStream::Closed);
    dies(&mut story, 9);
    story.until(9 * SECOND).link(Answer::Answers, EventStream::Open).states(&BOTH);
    story.until(12 * SECOND).states(&ENDED).until(60 * SECOND).states(&ENDED).until(70 * SECOND).moment();
    let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
    assert_eq!(findings, [""; 0]);
}

#[test]
fn an_event_that_is_withheld_is_reported_once() {
    let mut story = running(EventStream::Open);
    dies(&mut story, 9);
    story.until(6_500).states(&ENDED).until(15_500).states(&ENDED).until(620 * SECOND).moment();
    assert_eq!(
        told(&story),
        [
            "? statuses",
            "? statuses",
            "15599 finding.opened missed_runtime_event/c/stopped [default/web-0 a] Agent",
            "15599 finding.confirmed missed_runtime_event/c/stopped [default/web-0 a] Agent",
            "605000 finding.closed missed_runtime_event/c/stopped [default/web-0 a] Agent",
        ]
    );
}

/// The start of a container that its runtime does not report.
#[test]
fn a_start_that_is_withheld_is_reported_too() {
    let mut story = Story::new();
    story.at(1).link(Answer::Answers, EventStream::Open).states(&[]).until(5 * SECOND);
    let leaf = leaf('d');
    let pod = leaf.rsplit_once('/').map(|(pod, _)| pod.to_owned()).unwrap_or_default();
    story.mkdir(40, &pod).container('d', Role::Container, 'a', "main").mkdir(41, &leaf);
    story.exec(Who::new(900, SHIM, "sleep").within(41, POD_NETNS), TOP, "/bin/sleep 9");
    story.until(17 * SECOND).states(&[('d', Believed::Running)]).until(20 * SECOND).moment();
    let lines = told(&story);
    assert_eq!(lines.first().map(String::as_str), Some("? statuses"));
    assert!(
        lines.iter().all(|line| line == "? statuses" || line.contains(" missed_runtime_event/")),
        "{lines:?}"
    );
    assert_eq!(lines.iter().filter(|line| line.contains("finding.confirmed")).count(), 1);
}

/// The whole sandbox is gone, with its shim, and the runtime has not noticed.
fn vanished(story: &mut Story) {
    dies(story, 9);
    story.exit(PAUSE, TOP | class::PAUSE, 9).emptied(21, &leaf('a'));
    story.rmdir(22, &leaf('c')).rmdir(21, &leaf('a'));
    story.exit(Who::new(SHIM, 617, "containerd-shim"), class::RUNTIME, 9);
    story.dropped(POD_NETNS, 7).freed(POD_NETNS);
}

#[test]
fn a_sandbox_of_which_nothing_is_left_is_a_phantom_while_it_counts_as_ready() {
    let mut story = running(EventStream::None);
    vanished(&mut story);
    for minute in 1..=4 {
        story.until(minute * 60 * SECOND).states(&[('a', Believed::Running)]);
    }
    story.until(250 * SECOND).states(&[('a', Believed::Exited)]).until(255 * SECOND).moment();
    let findings: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
    assert_eq!(
        findings,
        [
            "60099 finding.opened phantom_sandbox/a [default/web-0 a] Agent",
            "180099 finding.confirmed phantom_sandbox/a [default/web-0 a] Agent",
            "250099 finding.closed phantom_sandbox/a [default/web-0 a] Agent",
        ]
    );
}

/// A pod that is stopped, as when a node is drained.
#[test]
fn a_sandbox_that_its_runtime_stops_is_no_phantom() {
    let mut story = running(EventStream::None);
    vanished(&mut story);
    story.until(6_500).states(&[('a', Believed::Exited)]).until(400 * SECOND).states(&[]).until(500 * SECOND);
    assert_eq!(told(&story.moment().clone()), ["? statuses"]);
}

/// Only pause is dead: its containers run on, and its network stays.
#[test]
fn a_sandbox_whose_pause_is_dead_is_stale_and_no_phantom() {
    let mut story = running(EventStream::None);
    story.exit(PAUSE, TOP | class::PAUSE, 9).emptied(21, &leaf('a'));
    story.until(20 * SECOND).states(&BOTH).until(300 * SECOND).states(&BOTH).until(310 * SECOND).moment();
    let lines: Vec<_> = told(&story).into_iter().filter(|line| line != "? statuses").collect();
    assert_eq!(
        lines,
        [
            "20099 finding.opened stale_runtime_status/a [default/web-0 a] Agent",
            "20099 finding.confirmed stale_runtime_status/a [default/web-0 a] Agent",
        ]
    );
}

/// Nothing shows whether a sandbox that was never seen exists, as in a virtual machine; one from before the
/// boot does not.
#[test]
fn a_sandbox_that_was_never_seen_is_a_phantom_only_from_before_the_boot() {
    for (made_at, is_phantom) in [(Timestamp(7), false), (Timestamp::ZERO, true)] {
        let mut story = running(EventStream::None);
        let it = || Stated { id: id('9'), made_at, ..stated('a', Believed::Running, None) };
        story.status(vec![it()]).until(200 * SECOND).status(vec![it()]);
        story.list(List::Processes, true, |_| {}).until(300 * SECOND).status(vec![it()]);
        story.until(400 * SECOND).moment();
        let is_told = told(&story).iter().any(|line| line.contains("finding.confirmed phantom_sandbox"));
        assert_eq!(is_told, is_phantom, "{made_at:?}");
    }
}

#[test]
fn how_late_an_event_is_is_measured_whichever_of_the_two_comes_first() {
    let mut story = running(EventStream::Open);
    story.tells('c', RuntimeEventKind::Stopped);
    let told = story.facts.last().expect("an event").at;
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(500));
    // The kernel's record comes after the event, and its time is before it.
    let mut late = Story::new();
    late.at(4_900).exit(SLEEP, TOP, 9);
    feed(&mut engine, &late.facts, ms(0));
    settle(&mut engine, ms(6_000));
    let stopped: Vec<_> = engine.lags().filter(|it| it.what == LagOf::Stopped).collect();
    assert!(
        matches!(stopped[..], [it] if it.by == LagBy::Event && it.took == told.since(ms(4_900))),
        "{stopped:?}"
    );

    let mut story = running(EventStream::None);
    dies(&mut story, 9);
    story.until(6_500).states(&ENDED).moment();
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    let lags: Vec<_> = engine.lags().map(|it| (it.by, it.took)).collect();
    assert_eq!(lags, [(LagBy::List, Duration::from_millis(1_500))]);
}

/// An agent that goes on from a checkpoint judges alike. If a runtime is given up, what it said is forgotten.
#[test]
fn beliefs_outlive_the_agent_and_not_the_runtime() {
    let mut story = running(EventStream::None);
    dies(&mut story, 9);
    story.until(15_500).states(&BOTH).moment();
    let mut engine = Engine::new(Settings::default());
    story.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    while engine.poll().is_some() {}
    let rows = engine.dump();
    let of_beliefs = |rows: &[CheckpointEntry]| {
        let is_one =
            |row: &&CheckpointEntry| matches!(row, CheckpointEntry::Belief(_) | CheckpointEntry::Runtime(_));
        rows.iter().filter(is_one).count()
    };
    assert_eq!(of_beliefs(&rows), 3);
    let mut other = Engine::new(Settings::default());
    rows.iter().cloned().for_each(|row| other.restore(row));
    assert_eq!(other.dump(), rows);
    let link = RuntimeLink {
        socket: SOCKET.to_owned(),
        answer: Answer::GivenUp,
        events: EventStream::Closed,
        since: None,
    };
    let mut story = Story::new();
    story.at(20 * SECOND).say(Origin::Cri, Fact::RuntimeLink(link)).moment();
    story.facts.iter().for_each(|seen| other.observe(seen.clone()));
    assert_eq!(of_beliefs(&other.dump()), 0);
}

impl Story {
    /// A list in which nothing has changed.
    fn same(&mut self) -> &mut Self {
        let (came, gone) = (Vec::new(), Vec::new());
        let it = RuntimeStatus { socket: SOCKET.to_owned(), whole: false, came, gone };
        self.say(Origin::Cri, Fact::RuntimeStatus(it))
    }

    /// The processes are listed again: the daemons and these.
    fn list_processes(&mut self, others: &[(Who, u32, char)]) -> &mut Self {
        self.list(List::Processes, true, |story| {
            story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
            story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
            for (who, ns_pid, container) in others {
                story.found(*who, *ns_pid, &leaf(*container), "/bin/program");
            }
        })
    }
}

/// A child outlives the container's program for a moment, and the lists show nothing new then.
#[test]
fn a_container_whose_cgroup_is_empty_only_later_is_judged_then() {
    let mut story = running(EventStream::None);
    let entered = Fact::CgroupEntered { cgroup: cgroup(22, &leaf('c')), member: key(693), by: DAEMON.task() };
    story.kernel(entered).exit(SLEEP, TOP, 9);
    story.until(6_500).same();
    story.until(8_000).emptied(22, &leaf('c'));
    for minute in 1..=5 {
        story.until(minute * 60 * SECOND).same();
    }
    story.until(310 * SECOND).moment();
    let told = told(&story);
    let confirmed = "60099 finding.confirmed stale_runtime_status/c [default/web-0 a] Agent";
    assert!(told.iter().any(|line| line == confirmed), "{told:#?}");
}

/// After a loss the cgroups are the last to be listed.
#[test]
fn a_phantom_is_judged_when_the_cgroups_are_known_again() {
    let mut story = running(EventStream::None);
    vanished(&mut story);
    story.until(20 * SECOND).states(&[('a', Believed::Running)]);
    story.until(25 * SECOND).lost();
    story.at(25_100).list_processes(&[]).list(List::Netns, true, |_| {});
    story.until(40 * SECOND).list(List::Cgroups, true, |_| {});
    story.until(48 * SECOND).moment();
    assert_eq!(story.judge(49 * SECOND).1.differences(), [""; 0]);
}

#[test]
fn a_finding_keeps_the_name_of_a_container_that_is_gone() {
    let mut story = running(EventStream::Open);
    dies(&mut story, 9);
    story.rmdir(22, &leaf('c'));
    for at in [7, 16, 60, 120, 180] {
        let ended = stated('c', Believed::Exited, Some(255));
        story.until(at * SECOND).status(vec![stated('a', Believed::Running, None), ended]);
    }
    let (_, engine) = story.until(200 * SECOND).moment().judge(200 * SECOND);
    let told: Vec<_> = engine.findings().map(|it| it.kind.explain().summary()).collect();
    assert!(told.contains(&"container main ended with 137, and the runtime says 255".to_owned()), "{told:?}");
}

/// The record of the program's start is lost, and a probe runs before the node is listed again.
#[test]
fn the_end_of_a_probe_is_not_taken_for_the_end_of_a_container_whose_start_was_lost() {
    let mut story = running(EventStream::None);
    let [main, probe] =
        [(900, "server"), (901, "probe")].map(|(pid, comm)| Who::new(pid, SHIM, comm).within(41, POD_NETNS));
    story.container('d', Role::Container, 'a', "second").mkdir(41, &leaf('d'));
    story.lost().exec(probe, TOP, "/bin/probe");
    story.at(5_200).list_processes(&[(PAUSE, 1, 'a'), (SLEEP, 1, 'c'), (main, 1, 'd'), (probe, 20, 'd')]);
    story.at(5_600).exit(probe, TOP, 0);
    story.until(60 * SECOND).exit(main, TOP, 9).emptied(41, &leaf('d'));
    for at in [62, 100] {
        let second = stated('d', Believed::Exited, Some(137));
        let first = BOTH.map(|(digit, state)| stated(digit, state, None));
        story.until(at * SECOND).status(first.into_iter().chain([second]).collect());
    }
    story.until(120 * SECOND).moment();
    assert_eq!(told(&story).into_iter().filter(|line| line != "? statuses").collect::<Vec<_>>(), [""; 0]);
}
