//! Plugins that fail, are slow, or wait in a queue.

mod waits;

use std::time::Duration;

use probe_common::event::class;

use super::{
    containerd::PATH,
    story::{
        CONTAINERD, Story, Who, call, id, ms,
        run::{check_lines, pass, settle, take},
        uid,
    },
};
use crate::{
    engine::Engine,
    model::{
        change::{ChangeKind, Finding, Output, Question},
        fact::{CniCommand, ContainerFound, Fact, List, MessageFound, NameSource, Observation, Origin, Role},
        finding::{CniFailing, CniQueue, CniSlow, Explain, Kind, Severity, Stage},
    },
};

const FAILED: u32 = 0x100;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

/// Begins a call of bridge for a sandbox of the pod `web-N`. The story's other calls are for the first pod.
fn begin(story: &mut Story, pid: u32, command: &str, digit: char, pod: char) {
    let mut it = call(pid, CONTAINERD, "/usr/lib/cni/bridge", command, PATH, digit);
    let own = format!("{pod}{}", &uid().as_str()[1..]);
    let args = it.variables.args.take().unwrap_or_default();
    it.variables.args = Some(args.replace(uid().as_str(), &own).replace("web-0", &format!("web-{pod}")));
    story.kernel(Fact::CniCalled(it));
}

fn end(story: &mut Story, pid: u32, status: u32) {
    story.exit(Who::new(pid, CONTAINERD, "bridge"), class::CNI, status);
}

/// An ADD that takes a millisecond.
fn add(story: &mut Story, at: u64, pid: u32, digit: char, pod: char, status: u32) {
    begin(story.at(at), pid, "ADD", digit, pod);
    end(story, pid, status);
}

/// A DEL that takes a millisecond.
fn del(story: &mut Story, at: u64, pid: u32, digit: char, pod: char, status: u32) {
    begin(story.at(at), pid, "DEL", digit, pod);
    end(story, pid, status);
}

fn finding(engine: &Engine, key: &str) -> Finding {
    engine.findings().find(|it| it.key.as_str() == key).cloned().expect("the finding")
}

fn failing(engine: &Engine) -> (Finding, CniFailing) {
    let finding = finding(engine, "cni_failing/bridge");
    let Kind::CniFailing(it) = finding.kind.clone() else { panic!("another kind") };
    (finding, it)
}

/// With containerd each try is a new sandbox.
#[test]
fn a_pod_whose_add_fails_again_and_again_waits_until_one_succeeds() {
    let mut story = Story::new();
    for (n, digit) in (0..).zip(['a', 'b', 'c']) {
        add(&mut story, (1 + 12 * n) * SECOND, 100 + u32::try_from(n).expect("few"), digit, '1', FAILED);
    }
    story.listed(Fact::MessageFound(MessageFound {
        container: id('b'),
        command: CniCommand::Add,
        text: Some("no addresses".to_owned()),
        source: "journal".to_owned(),
    }));
    let (told, engine) = story.judge(30 * SECOND);
    check_lines(
        &told,
        "
            13100 finding.opened cni_failing/bridge [default/web-1 b] Agent
            25100 finding.confirmed cni_failing/bridge [default/web-1 c] Agent
        ",
    );
    let (it, data) = failing(&engine);
    assert_eq!((data.attempts, data.pods, data.code), (3, 1, Some(1)));
    assert_eq!(data.message.and_then(|it| it.text).as_deref(), Some("no addresses"));
    assert_eq!(data.wasted.as_millis(), 3);
    assert_eq!((it.since, it.severity), (ms(SECOND), Severity::Warning));
    assert_eq!(it.sandboxes, [id('a'), id('b'), id('c')]);

    add(&mut story, 37 * SECOND, 200, 'd', '1', 0);
    let (told, _) = story.judge(38 * SECOND);
    assert_eq!(told.lines().last(), Some("37100 finding.closed cni_failing/bridge [default/web-1 c] Agent"));
}

/// Each failure has a message of its own.
#[test]
fn the_last_failure_has_its_say_however_fast_they_come() {
    let mut story = Story::new();
    for (n, digit) in (0..).zip(['a', 'b', 'c']) {
        add(&mut story, (1 + 5 * u64::from(n)) * SECOND, 100 + n, digit, '1', FAILED);
    }
    let (_, mut engine) = story.judge(30 * SECOND);
    let mut asked = Vec::new();
    let mut answer = |engine: &mut Engine| {
        while let Some(output) = engine.poll() {
            if let Output::Question(Question::Message { container, command, since }) = output {
                let text = Some(format!("failure of {}", container.short()));
                let source = "journal".to_owned();
                let fact = Fact::MessageFound(MessageFound { container, command, text, source });
                asked.push(since);
                engine.observe(Observation { at: engine.now, origin: Origin::Listed, fact });
            }
        }
    };
    for at in 30..70 {
        engine.advance(ms(at * SECOND));
        answer(&mut engine);
    }
    let message = failing(&engine).1.message.and_then(|it| it.text);
    assert_eq!(message, Some(format!("failure of {}", id('c').short())));
    assert_eq!(asked.len(), 1, "once more, and no search for what was asked already: {asked:?}");
}

/// All tries of a pod count until the last of them is old.
#[test]
fn what_closes_keeps_the_numbers_that_it_had() {
    let mut story = Story::new();
    for (n, digit) in (0..).zip(['a', 'b', 'c']) {
        add(&mut story, (1 + 60 * u64::from(n)) * SECOND, 100 + n, digit, '1', FAILED);
    }
    add(&mut story, 140 * SECOND, 110, 'd', '2', FAILED);
    let (told, engine) = story.judge(30 * MINUTE);
    assert_eq!(told.lines().last(), Some("721001 finding.closed cni_failing/bridge [default/web-2 d] Agent"));
    let (it, data) = failing(&engine);
    assert_eq!((data.attempts, data.pods, it.stage), (4, 2, Stage::Closed));
}

/// The pods get their networks one after the other.
#[test]
fn what_closes_had_as_many_failures_and_pods_as_at_its_worst() {
    let mut story = Story::new();
    let tries = [('a', '1'), ('b', '2'), ('c', '3'), ('d', '1'), ('e', '2'), ('f', '3')];
    for (n, (digit, pod)) in (0_u32..).zip(tries) {
        add(&mut story, (1 + u64::from(n)) * SECOND, 100 + n, digit, pod, FAILED);
    }
    let state = |engine: &Engine| {
        let (it, data) = failing(engine);
        (data.attempts, data.pods, it.severity, it.stage, it.pod.is_some())
    };
    assert_eq!(state(&story.judge(20 * SECOND).1), (6, 3, Severity::Critical, Stage::Confirmed, false));
    for (n, (digit, pod)) in (0_u32..).zip([('1', '1'), ('2', '2')]) {
        add(&mut story, (30 + u64::from(n)) * SECOND, 200 + n, digit, pod, 0);
    }
    assert_eq!(
        state(&story.judge(40 * SECOND).1),
        (2, 1, Severity::Warning, Stage::Confirmed, true),
        "one pod waits"
    );
    add(&mut story, 50 * SECOND, 202, '3', '3', 0);
    assert_eq!(state(&story.judge(60 * SECOND).1), (6, 3, Severity::Critical, Stage::Closed, false));
}

/// A sandbox that is on record, whose DEL fails three times.
fn undeleted() -> Story {
    let mut story = Story::new();
    story.at(1).on_record(&['a']);
    add(&mut story, SECOND, 100, 'a', '1', 0);
    for n in 0..3 {
        del(&mut story, (10 + 12 * u64::from(n)) * SECOND, 101 + n, 'a', '1', FAILED);
    }
    story
}

/// The kubelet has the runtime stop the same sandbox again and again.
#[test]
fn a_pod_whose_del_fails_again_and_again_cannot_end_until_one_succeeds() {
    let mut story = undeleted();
    for (command, text) in [(CniCommand::Del, "no lock"), (CniCommand::Add, "no addresses")] {
        story.listed(Fact::MessageFound(MessageFound {
            container: id('a'),
            command,
            text: Some(text.to_owned()),
            source: "journal".to_owned(),
        }));
    }
    let (told, engine) = story.judge(40 * SECOND);
    check_lines(
        &told,
        "
            22100 finding.opened cni_failing/bridge/DEL [default/web-1 a] Agent
            34100 finding.confirmed cni_failing/bridge/DEL [default/web-1 a] Agent
        ",
    );
    let it = finding(&engine, "cni_failing/bridge/DEL");
    let Kind::CniFailing(data) = &it.kind else { panic!("another kind") };
    assert_eq!(
        data.summary(),
        "DEL of bridge failed 3 times, last with exit 1, 1 pod cannot end, 3.0 ms lost: no lock"
    );
    assert_eq!((it.since, &it.sandboxes[..]), (ms(10 * SECOND), &[id('a')][..]));

    del(&mut story, 50 * SECOND, 200, 'a', '1', 0);
    // The runtime calls DEL once more when it removes the sandbox, and a single failure is not a finding.
    del(&mut story, 51 * SECOND, 201, 'a', '1', FAILED);
    let (told, _) = story.judge(5 * MINUTE);
    let last = told.lines().last();
    assert_eq!(last, Some("50100 finding.closed cni_failing/bridge/DEL [default/web-1 a] Agent"));
}

#[test]
fn a_del_is_tried_again_only_for_a_sandbox_on_record() {
    let mut story = undeleted();
    story.at(40 * SECOND).on_record(&[]);
    let (told, _) = story.judge(MINUTE);
    let last = told.lines().last();
    assert_eq!(last, Some("40100 finding.closed cni_failing/bridge/DEL [default/web-1 a] Agent"));

    let mut never = Story::new();
    never.at(1).on_record(&['b']);
    for n in 0..3 {
        del(&mut never, (1 + u64::from(n)) * SECOND, 101 + n, 'a', '1', FAILED);
    }
    assert!(!never.judge(MINUTE).0.contains("cni_failing"));
}

/// With containerd a failed ADD is followed by a DEL, which may fail for the same reason. Each has its own
/// finding.
#[test]
fn what_fails_with_both_commands_is_counted_apart() {
    let mut story = Story::new();
    story.at(1).on_record(&['a', 'b']);
    for (n, digit) in (0..).zip(['a', 'b']) {
        add(&mut story, (1 + 12 * u64::from(n)) * SECOND, 100 + 2 * n, digit, '1', FAILED);
        del(&mut story, (2 + 12 * u64::from(n)) * SECOND, 101 + 2 * n, digit, '1', FAILED);
    }
    let (_, engine) = story.judge(30 * SECOND);
    for key in ["cni_failing/bridge", "cni_failing/bridge/DEL"] {
        let Kind::CniFailing(data) = finding(&engine, key).kind else { panic!("another kind") };
        assert_eq!((data.attempts, data.pods), (2, 1), "{key}");
    }
}

/// One plugin fails for several pods, and not for the same reason.
#[test]
fn each_reason_of_a_plugin_is_reported_with_its_pods() {
    let told = |texts: [&str; 3]| {
        let mut story = Story::new();
        for (n, (digit, pod)) in (0_u32..).zip([('a', '1'), ('b', '2'), ('c', '3')]) {
            add(&mut story, (1 + u64::from(n)) * SECOND, 100 + n, digit, pod, FAILED);
        }
        for (digit, text) in ['a', 'b', 'c'].into_iter().zip(texts) {
            story.listed(Fact::MessageFound(MessageFound {
                container: id(digit),
                command: CniCommand::Add,
                text: Some(text.to_owned()),
                source: "journal".to_owned(),
            }));
        }
        let (_, engine) = story.judge(30 * SECOND);
        failing(&engine).0.kind.explain().summary()
    };
    let missing = "missing server_socket";
    let summary = told([missing, missing, "dial unix /run/x: connection refused"]);
    let both = ": missing server_socket (2 pods); dial unix /run/x: connection refused (1 pod)";
    assert!(summary.ends_with(both), "{summary}");
    let summary = told([
        "sandbox a1 of web-1: refused",
        "sandbox b2 of web-2: refused",
        "sandbox c3 of web-3: refused",
    ]);
    assert!(summary.ends_with(": sandbox c3 of web-3: refused"), "{summary}");
}

#[test]
fn one_pod_waits_and_two_pods_wait() {
    let summary = |attempts, pods| {
        let kind = CniFailing {
            plugin: "bridge".to_owned(),
            command: CniCommand::Add,
            attempts,
            pods,
            wasted: Duration::from_secs(1),
            code: None,
            message: None,
            messages: Vec::new(),
        };
        kind.summary()
    };
    assert_eq!(summary(1, 1), "ADD of bridge failed 1 time, 1 pod waits, 1.00 s lost");
    assert_eq!(summary(3, 2), "ADD of bridge failed 3 times, 2 pods wait, 1.00 s lost");
}

#[test]
fn tries_in_the_same_sandbox_count_as_well() {
    let mut story = Story::new();
    add(&mut story, SECOND, 100, 'a', '1', FAILED);
    add(&mut story, 2 * SECOND, 101, 'a', '1', FAILED);
    let (told, engine) = story.judge(40 * SECOND);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert_eq!(failing(&engine).1.attempts, 2);
}

#[test]
fn one_failure_and_a_success_are_none() {
    let mut story = Story::new();
    add(&mut story, SECOND, 100, 'a', '1', FAILED);
    add(&mut story, 12 * SECOND, 101, 'b', '1', 0);
    // A single failure of another pod, long after.
    add(&mut story, 90 * SECOND, 102, 'c', '2', FAILED);
    assert_eq!(story.judge(5 * MINUTE).0, "");
}

#[test]
fn what_fails_for_three_pods_at_once_is_critical() {
    let mut story = Story::new();
    for (n, pod) in (0..).zip(['1', '2', '3']) {
        let digit = ['a', 'b', 'c'][n];
        add(&mut story, SECOND, 100 + u32::try_from(n).expect("few"), digit, pod, FAILED);
    }
    let (told, engine) = story.judge(2 * SECOND);
    assert_eq!(told.lines().count(), 2, "{told}");
    let (it, data) = failing(&engine);
    assert_eq!((it.severity, data.pods, it.pod), (Severity::Critical, 3, None));
}

#[test]
fn what_fails_no_more_is_over_after_ten_minutes() {
    let mut story = Story::new();
    for (pid, digit) in (100..).zip(['a', 'b', 'c']) {
        add(&mut story, u64::from(pid) * SECOND, pid, digit, '1', FAILED);
    }
    let (told, _) = story.judge(15 * MINUTE);
    let last = told.lines().last();
    assert_eq!(last, Some("702001 finding.closed cni_failing/bridge [default/web-1 c] Agent"));
}

/// A late record belongs to a time for which findings were already judged.
#[test]
fn what_is_reported_late_opens_nothing_that_was_over_by_the_last_look() {
    let mut story = Story::new();
    let pod = format!("/kubepods/besteffort/pod{}", uid());
    story.mkdir(3, &pod);
    add(&mut story, SECOND, 100, 'a', '1', FAILED);
    begin(story.at(2 * SECOND), 101, "ADD", 'a', '1');
    story.address(Who::new(101, CONTAINERD, "bridge"), 41, "10.0.0.2/24", "eth0");
    end(&mut story, 101, FAILED);
    begin(&mut story, 102, "ADD", 'a', '1');
    story.dropped(41, 0).freed(41).rmdir(3, &pod);
    let (told, mut engine) = story.judge(40 * SECOND);
    check_lines(
        &told,
        "
            2100 finding.opened cni_failing/bridge [default/web-1 a] Agent
            31000 finding.confirmed cni_failing/bridge [default/web-1 a] Agent
            32006 finding.closed cni_failing/bridge [default/web-1 a] Agent
        ",
    );
    engine.advance(ms(40 * SECOND));
    let mut late = Story::new();
    end(late.at(4 * SECOND), 102, FAILED);
    late.facts.into_iter().for_each(|seen| engine.observe(seen));
    check_lines(
        &settle(&mut engine, ms(5 * SECOND)).join("\n"),
        "4000 cni.finished ADD bridge -> 1 in 1997 ms [default/web-1 a] late",
    );
}

/// The record of the pod's success may be lost, so no finding opens or is confirmed for it.
#[test]
fn a_failure_before_a_gap_opens_nothing_after_it() {
    let mut story = Story::new();
    add(&mut story, SECOND, 100, 'a', '1', FAILED);
    story.at(2 * SECOND).lost();
    add(&mut story, 3 * SECOND, 101, 'b', '2', FAILED);
    assert!(!story.judge(5 * MINUTE).0.contains("cni_failing"));
    // A failure after the gap counts.
    add(&mut story, 15 * SECOND, 102, 'c', '2', FAILED);
    assert!(story.judge(5 * MINUTE).0.contains("finding.opened cni_failing/bridge"));
}

#[test]
fn a_slow_call_is_reported_while_it_runs_and_for_a_while_after() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    end(story.at(21 * SECOND), 100, 0);
    let (told, engine) = story.judge(22 * SECOND);
    check_lines(
        &told,
        "
            11000 finding.opened cni_slow/bridge/ADD [default/web-1 a] Agent
            11000 finding.confirmed cni_slow/bridge/ADD [default/web-1 a] Agent
        ",
    );
    let Kind::CniSlow(CniSlow { took, open, .. }) = finding(&engine, "cni_slow/bridge/ADD").kind else {
        panic!("another kind")
    };
    assert_eq!((took.as_secs(), open), (20, false));
    let (told, _) = story.judge(15 * MINUTE);
    assert_eq!(
        told.lines().last(),
        Some("621000 finding.closed cni_slow/bridge/ADD [default/web-1 a] Agent")
    );
}

#[test]
fn a_call_that_hangs_now_is_named_before_a_longer_one_that_has_ended() {
    let mut story = Story::new();
    for digit in ['a', 'b'] {
        let (id, source) = (id(digit), NameSource::Bundle);
        let (sandbox, role) = (Some(id.clone()), Role::Sandbox);
        let it = ContainerFound { id, role, sandbox, name: None, pod: None, source, started: None };
        story.listed(Fact::ContainerFound(it));
    }
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    end(story.at(31 * SECOND), 100, 0);
    begin(story.at(40 * SECOND), 101, "ADD", 'b', '2');
    let told = |story: &Story, at: u64| {
        let it = finding(&story.judge(at).1, "cni_slow/bridge/ADD");
        let ends = it.evidence.iter().filter(|it| matches!(it.event.what, ChangeKind::CniFinished { .. }));
        let ends: Vec<_> = ends.map(|it| it.sandbox.clone()).collect();
        (it.pod.and_then(|pod| pod.name).unwrap_or_default(), it.since, it.kind.explain().summary(), ends)
    };
    let first = ("web-1".to_owned(), ms(SECOND), "ADD bridge took 30.00 s".to_owned(), vec![id('a')]);
    assert_eq!(told(&story, 49 * SECOND), first, "the second call is within the limit");
    let (pod, since, summary, ends) = told(&story, 55 * SECOND);
    assert_eq!((pod.as_str(), since, ends), ("web-2", ms(40 * SECOND), vec![id('a')]));
    assert!(summary.starts_with("ADD bridge has been running for 1"), "{summary}");
    end(story.at(60 * SECOND), 101, 0);
    let (pod, since, _, ends) = told(&story, MINUTE + SECOND);
    assert_eq!((pod.as_str(), since, ends), ("web-1", ms(SECOND), vec![id('a'), id('b')]));
}

#[test]
fn a_call_just_within_the_limit_is_not_slow() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "DEL", 'a', '1');
    end(story.at(10 * SECOND), 100, 0);
    assert_eq!(story.judge(15 * MINUTE).0, "");
}

/// The time of the second try belongs to `cni_failing`.
#[test]
fn an_add_that_times_out_again_is_failing_and_not_slow() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    end(story.at(9 * SECOND), 100, 9);
    begin(story.at(20 * SECOND), 101, "ADD", 'b', '1');
    end(story.at(50 * SECOND), 101, 9);
    let (told, _) = story.judge(55 * SECOND);
    assert!(!told.contains("cni_slow") && told.contains("cni_failing"), "{told}");
}

#[test]
fn a_call_whose_end_may_be_lost_is_not_slow_until_it_is_listed() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    story.at(2 * SECOND).lost();
    assert!(!story.judge(5 * MINUTE).0.contains("cni_slow"));
    story.at(40 * SECOND).list(List::Processes, true, |story| {
        story.found(Who::new(100, CONTAINERD, "bridge"), 100, "/system.slice", "/usr/lib/cni/bridge");
    });
    assert!(story.judge(5 * MINUTE).0.contains("finding.opened cni_slow/bridge/ADD"));
}

/// The next agent reports the gap first, and then time passes over it.
#[test]
fn nothing_is_judged_as_of_a_time_without_an_agent() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    let (_, mut engine) = story.judge(2 * SECOND);
    let fact = Fact::AgentAway { since: ms(2 * SECOND) };
    engine.observe(Observation { at: ms(60 * SECOND), origin: Origin::Agent, fact });
    pass(&mut engine, ms(61 * SECOND));
    check_lines(
        &take(&mut engine).join("\n"),
        "
            60000 gap NoAgent 0 Agent
            ? process 100
            60000 finding.opened blind_spot/no_agent Agent
            60000 finding.confirmed blind_spot/no_agent Agent
        ",
    );
}

/// No hook sees the end of a program that began before the hook was attached. It is not known how long such a
/// call took. A later listing that has the call says nothing of the time between the listings.
#[test]
fn a_call_that_only_a_listing_showed_is_never_slow() {
    let mut story = Story::new();
    let found = |story: &mut Story| {
        story.list(List::Processes, true, |story| {
            story.cni_found(call(100, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
        });
    };
    found(story.at(2 * SECOND));
    found(story.at(5 * MINUTE));
    let (told, engine) = story.judge(60 * MINUTE);
    assert_eq!((told.as_str(), engine.deadline()), ("", None), "and it is not waited for");
    let mut gone = story.clone();
    gone.at(6 * MINUTE).list(List::Processes, true, |_| {});
    assert_eq!(gone.judge(60 * MINUTE).0, "");
    end(story.at(6 * MINUTE), 100, 0);
    assert_eq!(story.judge(60 * MINUTE).0, "");
}

/// The boot time jumps when the node resumes. The plugin did not run in between.
#[test]
fn a_call_during_which_the_node_was_suspended_is_not_slow_for_that() {
    let asleep = |story: &mut Story| {
        begin(story.at(SECOND), 100, "ADD", 'a', '1');
        let slept = Duration::from_secs(600);
        story.at(605 * SECOND).say(Origin::Agent, Fact::Resumed { slept });
    };
    let mut story = Story::new();
    asleep(&mut story);
    end(story.at(607 * SECOND), 100, 0);
    assert_eq!(story.judge(30 * MINUTE).0, "");
    // The call is slow if it runs on after that.
    let mut story = Story::new();
    asleep(&mut story);
    end(story.at(620 * SECOND), 100, 0);
    let (told, engine) = story.judge(621 * SECOND);
    check_lines(
        &told,
        "
            615000 finding.opened cni_slow/bridge/ADD [default/web-1 a] Agent
            615000 finding.confirmed cni_slow/bridge/ADD [default/web-1 a] Agent
        ",
    );
    let Kind::CniSlow(CniSlow { took, .. }) = finding(&engine, "cni_slow/bridge/ADD").kind else {
        panic!("another kind")
    };
    assert_eq!(took.as_secs(), 15);
}

fn queue(waiting: u32) -> Story {
    let mut story = Story::new();
    for n in 0..waiting {
        let digit = char::from_digit(n % 6 + 10, 16).expect("a digit");
        begin(story.at(SECOND + u64::from(n)), 100 + n, "DEL", digit, '1');
    }
    story
}

#[test]
fn many_plugins_behind_an_old_one_are_a_queue() {
    let mut story = queue(20);
    let (told, engine) = story.judge(7 * SECOND);
    check_lines(
        &told,
        "
            6000 finding.opened cni_queue/node [d] Agent
            6000 finding.confirmed cni_queue/node [d] Agent
        ",
    );
    let Kind::CniQueue(CniQueue { waiting, ref plugin, .. }) = finding(&engine, "cni_queue/node").kind else {
        panic!("another kind")
    };
    assert_eq!((waiting, plugin.as_str()), (20, "bridge"));
    end(story.at(8 * SECOND), 100, 0);
    assert!(story.judge(9 * SECOND).0.contains("8100 finding.closed cni_queue/node"));
}

#[test]
fn fewer_plugins_or_young_ones_are_no_queue() {
    assert_eq!(queue(19).judge(9 * SECOND).0, "");
    let mut story = queue(20);
    end(story.at(5 * SECOND), 100, 0);
    assert_eq!(story.judge(9 * SECOND).0, "");
}

#[test]
fn plugins_whose_ends_may_be_lost_are_no_queue() {
    let mut story = queue(20);
    story.at(2 * SECOND).lost();
    assert!(!story.judge(9 * SECOND).0.contains("cni_queue"));
}
