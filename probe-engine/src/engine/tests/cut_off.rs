//! Calls of plugins whose runtime ends before they do.

use probe_common::event::class;

use super::{
    containerd::PATH,
    story::{CONTAINERD, DAEMON, KUBELET, Story, UID, Who, call, id, leaf, run::check_lines},
};
use crate::{
    engine::world::CheckpointEntry,
    model::{
        fact::{Fact, List, Origin, SIGKILL, SIGTERM},
        finding::{Kind, Severity, Stage, WrongDelForm},
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const BRIDGE: &str = "/usr/lib/cni/bridge";
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
const SIGUSR1: u32 = 10;
const SIGPIPE: u32 = 13;
/// The status of a shell whose program SIGPIPE ended.
const EXIT_141: u32 = 141 << 8;

/// A call of bridge for the sandbox of a pod of its own.
fn begin(story: &mut Story, pid: u32, command: &str, digit: char) {
    let mut it = call(pid, CONTAINERD, BRIDGE, command, PATH, digit);
    let args = it.variables.args.take().unwrap_or_default();
    let own = format!("{digit}{}", &UID[1..]);
    it.variables.args = Some(args.replace(UID, &own).replace("web-0", &format!("web-{digit}")));
    story.kernel(Fact::CniCalled(it));
}

fn end(story: &mut Story, pid: u32, status: u32) {
    story.exit(Who::new(pid, CONTAINERD, "bridge"), class::CNI, status);
}

fn runtime_is_killed(story: &mut Story) {
    story.exit(DAEMON, class::CALLER, SIGKILL);
}

/// Calls for three pods that fail when nobody reads their answer any more. `is_killed`: the runtime was
/// killed.
fn three_fail(command: &str, is_killed: bool) -> String {
    let mut story = Story::new();
    story.at(1).on_record(&['a', 'b', 'c']);
    story.at(SECOND);
    let pods = [(100, 'a'), (101, 'b'), (102, 'c')];
    for (pid, digit) in pods {
        begin(&mut story, pid, command, digit);
    }
    if is_killed {
        runtime_is_killed(story.at(2 * SECOND));
    }
    story.at(3 * SECOND);
    for ((pid, _), status) in pods.into_iter().zip([SIGPIPE, EXIT_141, EXIT_141]) {
        end(&mut story, pid, status);
    }
    story.judge(5 * MINUTE).0
}

#[test]
fn calls_that_the_end_of_the_runtime_cut_off_are_no_failures_of_the_plugin() {
    for command in ["ADD", "DEL"] {
        assert!(three_fail(command, false).contains("finding.confirmed cni_failing/bridge"), "{command}");
        assert_eq!(three_fail(command, true), "", "{command}");
    }
}

/// systemd stops a runtime with SIGTERM. The runtime kills the plugins that it waits for, and then ends.
#[test]
fn calls_that_a_runtime_killed_to_end_itself_are_no_failures_of_the_plugin() {
    let confirmed = |command: &str, told: Option<u32>| {
        let mut story = Story::new();
        story.at(1).on_record(&['a', 'b', 'c']).at(SECOND);
        let pods = [(100, 'a'), (101, 'b'), (102, 'c')];
        for (pid, digit) in pods {
            begin(&mut story, pid, command, digit);
        }
        if let Some(signal) = told {
            story.at(2 * SECOND).kill(Who::new(1, 0, "systemd"), DAEMON, signal);
        }
        story.at(2 * SECOND + 100);
        for (pid, _) in pods {
            story.kill(DAEMON, Who::new(pid, CONTAINERD, "bridge"), SIGKILL);
            end(&mut story, pid, SIGKILL);
        }
        if told.is_some() {
            story.at(2 * SECOND + 200).exit(DAEMON, class::CALLER, 0);
        }
        story.judge(5 * MINUTE).0.contains("finding.confirmed cni_failing/bridge")
    };
    for command in ["ADD", "DEL"] {
        assert!(!confirmed(command, Some(SIGTERM)), "{command}");
        // A plugin that exceeds the runtime's limit is killed as well, and dockerd shows its threads for
        // SIGUSR1.
        assert!(confirmed(command, None), "{command}");
        assert!(confirmed(command, Some(SIGUSR1)), "{command}");
    }
}

/// A runtime that drains its calls kills them only when systemd, which waits for 90 s, is about to kill it.
/// After minutes the signal was not obeyed, and what the runtime kills is a plugin that exceeds a limit.
#[test]
fn a_runtime_that_was_asked_to_end_may_take_a_while() {
    let confirmed = |after: u64, is_known: bool| {
        let mut story = Story::new();
        story.at(1).on_record(&['a', 'b', 'c']);
        if is_known {
            story.exec(DAEMON, class::CALLER, "/usr/bin/containerd");
        }
        let pods = [(100, 'a'), (101, 'b'), (102, 'c')];
        story.at(SECOND);
        for (pid, digit) in pods {
            begin(&mut story, pid, "ADD", digit);
        }
        story.at(2 * SECOND).kill(Who::new(1, 0, "systemd"), DAEMON, SIGTERM);
        story.until(2 * SECOND + after);
        for (pid, _) in pods {
            story.kill(DAEMON, Who::new(pid, CONTAINERD, "bridge"), SIGKILL);
            end(&mut story, pid, SIGKILL);
        }
        story.exit(DAEMON, class::CALLER, 0);
        let (told, engine) = story.judge(2 * SECOND + after + 7 * MINUTE);
        assert!(
            !engine.dump().iter().any(|it| matches!(it, CheckpointEntry::Signal(_))),
            "all are forgotten"
        );
        told.contains("finding.confirmed cni_failing/bridge")
    };
    for is_known in [true, false] {
        for (after, is_failure) in
            [(10 * SECOND, false), (85 * SECOND, false), (3 * MINUTE, false), (7 * MINUTE, true)]
        {
            assert_eq!(confirmed(after, is_known), is_failure, "after {after} ms, known: {is_known}");
        }
    }
}

/// This holds only for the daemon: for other processes only what late records need is kept.
#[test]
fn signals_to_other_processes_are_forgotten_soon() {
    let mut story = Story::new();
    story.at(1).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
    story.at(SECOND).kill(Who::new(1, 0, "systemd"), DAEMON, SIGTERM);
    story.kill(Who::new(1, 0, "systemd"), DAEMON, SIGUSR1);
    for pid in 2000..2100 {
        story.kill(Who::new(1, 0, "systemd"), Who::new(pid, 1, "sleep"), SIGTERM);
    }
    let kept = |until: u64| {
        let dump = story.judge(until).1.dump();
        dump.iter().filter(|it| matches!(it, CheckpointEntry::Signal(_))).count()
    };
    assert_eq!([kept(30 * SECOND), kept(80 * SECOND), kept(10 * MINUTE)], [102, 1, 0]);
}

#[test]
fn a_failure_before_the_end_of_the_runtime_is_one() {
    let mut story = Story::new();
    for (n, digit) in (0_u32..).zip(['a', 'b', 'c']) {
        begin(story.at(SECOND), 100 + n, "ADD", digit);
        end(&mut story, 100 + n, 0x100);
    }
    runtime_is_killed(story.at(2 * SECOND));
    assert!(story.judge(MINUTE).0.contains("finding.confirmed cni_failing/bridge"));
}

/// The runtime tries ADD again for the same sandbox, and is killed. Then its next DEL comes after an ADD that
/// was killed.
#[test]
fn a_failure_keeps_its_exit_code_and_the_latest_run_is_the_one_that_was_killed() {
    let mut story = Story::new();
    story.at(1).on_record(&['a', 'b', 'c']).at(SECOND);
    let pods = [(100, 'a'), (110, 'b'), (120, 'c')];
    for (pid, digit) in pods {
        begin(&mut story, pid, "ADD", digit);
        end(&mut story, pid, 0x500);
        begin(&mut story, pid + 1, "ADD", digit);
    }
    runtime_is_killed(&mut story);
    for (pid, digit) in pods {
        end(&mut story, pid + 1, SIGKILL);
        begin(&mut story, pid + 2, "DEL", digit);
        end(&mut story, pid + 2, 0);
    }
    let (_, engine) = story.judge(MINUTE);
    let codes = engine.findings().filter_map(|it| {
        let Kind::CniFailing(failing) = &it.kind else { return None };
        Some(failing.code)
    });
    assert_eq!(codes.collect::<Vec<_>>(), [Some(5)]);
    let wrong = engine.findings().filter_map(|it| {
        let Kind::CniWrongDel(wrong) = &it.kind else { return None };
        Some((wrong.how, wrong.count, it.sandboxes.len(), it.severity))
    });
    // The runtime itself ended, so that is no outage of the plugin.
    let expected = (WrongDelForm::AddKilled, 3, 3, Severity::Info);
    assert_eq!(wrong.collect::<Vec<_>>(), [expected]);
}

/// Nobody waits for it any more, and until then it was not slow.
#[test]
fn a_call_is_slow_only_for_as_long_as_its_runtime_waits() {
    let slow = |killed_at: u64, ended: Option<u32>| {
        let mut story = Story::new();
        begin(story.at(SECOND), 100, "ADD", 'a');
        runtime_is_killed(story.at(killed_at));
        if let Some(status) = ended {
            end(story.at(90 * SECOND), 100, status);
        }
        let (_, engine) = story.judge(2 * MINUTE);
        let open = engine.findings().filter(|it| it.stage != Stage::Closed);
        let took = open.filter_map(|it| {
            let Kind::CniSlow(slow) = &it.kind else { return None };
            Some(slow.took.as_secs())
        });
        took.collect::<Vec<_>>()
    };
    for ended in [None, Some(0), Some(EXIT_141)] {
        assert_eq!(slow(3 * SECOND, ended), [0; 0], "{ended:?}");
        assert_eq!(slow(21 * SECOND, ended), [20], "{ended:?}");
    }
}

/// The address is held, and no DEL has freed it.
#[test]
fn a_del_that_was_cut_off_has_not_freed_anything() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a');
    end(&mut story, 100, 0);
    begin(story.at(10 * SECOND), 101, "DEL", 'a');
    runtime_is_killed(story.at(11 * SECOND));
    end(story.at(12 * SECOND), 101, EXIT_141);
    let engine = story.judge(20 * SECOND).1;
    let row = engine.world.attachments.get(&(id('a'), "eth0".to_owned())).expect("the attachment");
    let bridge = row.plugins.first().expect("the plugin");
    assert!(bridge.del.has_broken_off() && !bridge.del.is_open() && bridge.del.succeeded == 0, "{bridge:?}");
    assert_eq!(bridge.del.unseen, 0, "its end was seen, so that a blind DEL later is one");
}

/// The hooks find no runtime above host-local any more.
#[test]
fn what_a_plugin_calls_after_the_end_of_the_runtime_is_part_of_its_call() {
    let part = |pid, parent, host: bool| {
        let mut it = call(pid, parent, HOST_LOCAL, "ADD", PATH, 'a');
        if !host {
            (it.host, it.caller) = (false, None);
        }
        Fact::CniCalled(it)
    };
    let mut story = Story::new();
    story.at(10).cni(800, CONTAINERD, BRIDGE, "ADD", PATH);
    runtime_is_killed(story.at(20));
    story.at(30).say(Origin::Delegated, part(810, 800, false));
    // A plugin that this one calls, too.
    story.say(Origin::Delegated, part(820, 810, false));
    story.exit(Who::new(820, 810, "host-local"), class::CNI, 0);
    story.exit(Who::new(810, 800, "host-local"), class::CNI, 0);
    story.exit(Who::new(800, CONTAINERD, "bridge"), class::CNI, SIGPIPE);
    let told = story.run();
    let calls: Vec<&str> = told.iter().map(String::as_str).filter(|line| line.contains(" cni.")).collect();
    check_lines(
        &calls.join("\n"),
        "
            10 cni.started ADD bridge [default/web-0 a]
            30 cni.started ADD host-local by bridge [default/web-0 a]
            31 cni.started ADD host-local by host-local [default/web-0 a]
            32 cni.finished ADD host-local -> 0 in 1 ms [default/web-0 a]
            33 cni.finished ADD host-local -> 0 in 3 ms [default/web-0 a]
            34 cni.finished ADD bridge -> 141 in 24 ms [default/web-0 a]
        ",
    );
    // A program in a container, even one that a plugin of the node put there, remains one.
    let mut story = Story::new();
    story.at(1).mkdir(22, &leaf('a'));
    story.at(10).cni(800, CONTAINERD, BRIDGE, "ADD", PATH);
    runtime_is_killed(story.at(20));
    let mut inside = call(810, 800, HOST_LOCAL, "ADD", PATH, 'a');
    (inside.host, inside.caller) = (false, None);
    inside.task = Who::new(810, 800, "host-local").within(22, 41).task();
    story.at(30).say(Origin::Delegated, Fact::CniCalled(inside));
    let told = story.run();
    assert!(
        told.iter().any(|line| line.ends_with("ADD host-local by bridge [default/web-0 a] Delegated")),
        "{told:?}"
    );
}

/// The runtime was killed between two plugins of a chain, so it gave up none of them.
#[test]
fn a_chain_that_the_end_of_the_runtime_broke_off_lacks_no_plugin() {
    let causes = |is_killed: bool, is_queried: bool| {
        let mut story = Story::new();
        story.at(1).list(List::Processes, true, |story| {
            story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
            story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        });
        story.at(6 * SECOND).network("podnet", &["bridge", "portmap"]);
        story.at(7 * SECOND).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
        story.at(8 * SECOND).cni_done(800, BRIDGE, "ADD", PATH);
        if is_killed {
            runtime_is_killed(&mut story);
            story.exec(Who::new(950, 1, "containerd"), class::CALLER, "/usr/bin/containerd");
        }
        if is_queried {
            let query = Who::started(70 * SECOND, 1, "containerd");
            story.until(70 * SECOND).exec(query, class::CALLER, "/usr/bin/containerd --version");
            story.at(70 * SECOND + 20).exit(query, class::CALLER, 0);
        }
        for at in [80, 100] {
            story.until(at * SECOND).network("podnet", &["bridge", "portmap"]);
        }
        story.until(110 * SECOND).moment();
        let told = story.run();
        told.into_iter().filter(|line| line.contains("finding.confirmed stuck_start/")).count()
    };
    assert_eq!((causes(false, false), causes(true, false)), (1, 0));
    // Asked for its version, the runtime's program ended, and the runtime did not.
    assert_eq!(causes(false, true), 1);
}

/// An agent that takes over knows who made the calls that are open.
#[test]
fn a_call_from_before_a_restart_of_the_agent_is_cut_off_too() {
    let mut story = Story::new();
    begin(story.at(SECOND), 100, "ADD", 'a');
    begin(&mut story, 101, "ADD", 'b');
    let (_, engine) = story.judge(2 * SECOND);
    let mut later = Story::new();
    later.restored = engine.dump();
    runtime_is_killed(later.at(3 * SECOND));
    end(later.at(4 * SECOND), 100, EXIT_141);
    end(&mut later, 101, EXIT_141);
    assert_eq!(later.judge(MINUTE).0, "");
}
