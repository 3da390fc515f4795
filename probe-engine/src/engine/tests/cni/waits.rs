//! What a slow call waits for.

use std::collections::BTreeSet;

use strum::VariantNames as _;

use super::*;
use crate::model::{
    fact::{ProcessState, RunState, ThreadState},
    finding::CniWaitForm,
    id::TaskKey,
};

/// The plugin's own program is asked about, shortly before the call is slow. Each form has its words.
#[test]
fn a_slow_call_says_what_it_waits_for() {
    let waits = |state: RunState, function: Option<&str>, kind: RunState| {
        let mut story = Story::new();
        begin(story.at(SECOND), 100, "ADD", 'a', '1');
        story.at(2 * SECOND).exec(
            Who::new(101, 100, "iptables"),
            class::CNI,
            "iptables -w -t nat -A POSTROUTING",
        );
        let plugin = Who::new(100, CONTAINERD, "bridge").task().key;
        answer(&mut story, plugin, RunState::Sleeping, Some("do_wait"), RunState::Sleeping);
        let process = Who::new(101, 100, "iptables").task().key;
        answer(&mut story, process, state, function, kind);
        let (_, engine) = story.judge(12 * SECOND);
        finding(&engine, "cni_slow/bridge/ADD").kind.explain().summary()
    };
    let sleeping = |function| waits(RunState::Sleeping, Some(function), RunState::Sleeping);
    for (function, does) in [
        ("locks_lock_inode_wait", "waits for a file lock"),
        ("anon_pipe_read", "waits for input"),
        ("do_wait", "waits for a program that it started"),
        ("ep_poll", "waits for an answer"),
        ("unix_stream_read_generic", "waits for an answer"),
        ("hrtimer_nanosleep", "pauses"),
        ("do_freezer_trap", "is frozen"),
    ] {
        let summary = sleeping(function);
        assert!(summary.starts_with("ADD bridge has been running for 1"), "{summary}");
        assert!(summary.ends_with(&format!("s: iptables[101] {does} ({function})")), "{summary}");
    }
    assert!(!sleeping("futex_do_wait").contains("iptables"), "other threads of it may do something");
    let blocked = |function| waits(RunState::Sleeping, function, RunState::Uninterruptible);
    assert!(blocked(Some("rtnl_lock")).ends_with("waits for the kernel's network lock (rtnl_lock)"));
    assert!(blocked(Some("nfs_wait_bit_killable")).ends_with("waits in the kernel (nfs_wait_bit_killable)"));
    assert!(blocked(None).ends_with("iptables[101] waits in the kernel"));
    assert!(waits(RunState::Running, None, RunState::Running).ends_with("iptables[101] is at work"));
    assert!(waits(RunState::Stopped, None, RunState::Stopped).ends_with("iptables[101] is stopped"));
}

/// Answers at once that one thread of a process waits so.
fn answer(story: &mut Story, process: TaskKey, state: RunState, function: Option<&str>, kind: RunState) {
    let threads = vec![ThreadState { state: kind, function: function.map(str::to_owned), count: 1 }];
    story.at(10 * SECOND + 5).listed(Fact::ProcessState(ProcessState { process, state, threads }));
}

/// A plugin that reads from its daemon does not wait for a program that it left running.
#[test]
fn a_program_for_which_the_plugin_does_not_wait_is_not_looked_at() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    story.at(2 * SECOND).exec(Who::new(101, 100, "sleep"), class::CNI, "sleep 300");
    let plugin = Who::new(100, CONTAINERD, "bridge").task().key;
    answer(&mut story, plugin, RunState::Sleeping, Some("unix_stream_read_generic"), RunState::Sleeping);
    let summary = finding(&story.judge(12 * SECOND).1, "cni_slow/bridge/ADD").kind.explain().summary();
    assert!(summary.ends_with("[100] waits for an answer (unix_stream_read_generic)"), "{summary}");
}

/// A shell that tries again and again starts a program each time.
#[test]
fn what_was_seen_of_a_program_that_has_ended_is_told_with_its_time() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    let sleep = || Who::new(101, 100, "sleep");
    story.at(2 * SECOND).exec(sleep(), class::CNI, "sleep 9");
    let plugin = Who::new(100, CONTAINERD, "bridge").task().key;
    answer(&mut story, plugin, RunState::Sleeping, Some("do_wait"), RunState::Sleeping);
    answer(&mut story, sleep().task().key, RunState::Sleeping, Some("hrtimer_nanosleep"), RunState::Sleeping);
    story.at(11 * SECOND).exit(sleep(), class::CNI, 0);
    let it = finding(&story.judge(15 * SECOND).1, "cni_slow/bridge/ADD").kind;
    let summary = it.explain().summary();
    assert!(
        summary.ends_with("s: sleep[101] pauses (hrtimer_nanosleep), 9.00 s after the call began"),
        "{summary}"
    );
    let repair = it.explain().repair(&[], &[]);
    assert!(repair.iter().any(|line| line.ends_with(" -C 'bridge'")), "{repair:?}");
}

/// An answer may be late, or show nothing. A call that ends in time is never looked at.
#[test]
fn what_a_slow_call_waits_for_is_looked_at_again_while_it_runs() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    let asked = |story: &mut Story, until: u64| {
        let told = story.until(until).moment().run();
        told.iter().filter(|line| *line == "? process 100").count()
    };
    let times = [8_000, 11_000, 13_000, 16_000, 21_000];
    assert_eq!(times.map(|at| asked(&mut story, at)), [0, 1, 1, 2, 3]);
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    end(story.at(9 * SECOND), 100, 0);
    assert_eq!(asked(&mut story, 60 * SECOND), 0);
}

/// Whoever looks ten minutes later still sees what the call waited for.
#[test]
fn what_a_call_waited_for_is_kept_when_it_has_ended() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a', '1');
    let process = Who::new(100, CONTAINERD, "bridge").task().key;
    let function = Some("locks_lock_inode_wait".to_owned());
    let threads = vec![ThreadState { state: RunState::Sleeping, function, count: 1 }];
    let state = RunState::Sleeping;
    story.at(10 * SECOND + 5).listed(Fact::ProcessState(ProcessState { process, state, threads }));
    end(story.at(31 * SECOND), 100, 0);
    let it = finding(&story.judge(5 * MINUTE).1, "cni_slow/bridge/ADD").kind;
    let summary = it.explain().summary();
    assert!(summary.starts_with("ADD bridge took 30.00 s: "), "{summary}");
    let seen = "[100] waits for a file lock (locks_lock_inode_wait), 9.00 s after the call began";
    assert!(summary.ends_with(seen), "{summary}");
    let repair = it.explain().repair(&[], &[]);
    assert!(
        !repair.iter().any(|line| line.contains("100")),
        "its number may be another one's by now: {repair:?}"
    );
}

/// The first cells of the page's table are the forms, each once.
#[test]
fn the_page_has_each_form_and_no_other() {
    let page = include_str!("../../../../../docs/findings/cni_slow.md");
    let (_, table) = page.split_once("| `waits.for` |").expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.split(" | ").next());
    let named: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(named.len(), CniWaitForm::VARIANTS.len(), "{named:?}");
    assert_eq!(BTreeSet::from_iter(named), BTreeSet::from_iter(CniWaitForm::VARIANTS.iter().copied()));
}
