//! Stops that do not end, in cases that the recorded stories do not cover.

use std::process::Command;

use probe_common::event::class;

use super::{
    containerd::{self, PATH, TOP},
    story::{CONTAINERD, DAEMON, KUBELET, POD_NETNS, SHIM, Story, Who, id, ms},
};
use crate::model::{
    fact::{Fact, List, Origin},
    finding::{Explain, Kind, StopStep, StuckStop},
    id::NetnsKey,
};

const SLEEP: Who = Who::new(693, SHIM, "sleep").within(22, POD_NETNS);
const BRIDGE: &str = "/usr/lib/cni/bridge";
const SECOND: u64 = 1000;

fn plugin(pid: u32) -> Who {
    Who::new(pid, CONTAINERD, "bridge")
}

fn told(story: &Story) -> Vec<String> {
    story.run().into_iter().filter(|line| line.contains(" stuck_stop/")).collect()
}

/// The runtime and the kubelet are up.
fn up() -> Story {
    let mut story = Story::new();
    story.at(1).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
    });
    story
}

fn running() -> Story {
    let mut story = up();
    containerd::start(&mut story);
    story.at(90).on_record(&['a']);
    containerd::run(&mut story);
    story
}

/// SIGTERM begins the pod's termination grace period, SIGKILL ends it.
#[test]
fn a_process_that_outlives_sigkill_is_stuck_and_one_in_its_grace_is_not() {
    let runc = Who::new(713, SHIM, "runc");
    let mut story = running();
    story.at(200).exec(runc, class::RUNTIME, &format!("runc kill {} 15", id('c')));
    story.kill(runc, SLEEP, 15).exit(runc, class::RUNTIME, 0).until(3_600 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);

    let runc = Who::new(714, SHIM, "runc");
    story.exec(runc, class::RUNTIME, &format!("runc kill {} 9", id('c')));
    story.kill(runc, SLEEP, 9).until(3_719 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);
    story.until(3_721 * SECOND).moment();
    story.exit(SLEEP, TOP, 9).until(3_723 * SECOND).moment();
    let key = format!("stuck_stop/{} [default/web-0 a] Agent", id('a'));
    story.check_findings(&format!(
        "
            3720002 finding.opened {key}
            3720002 finding.confirmed {key}
            3721099 finding.closed {key}
        "
    ));
}

/// A stranger who sends SIGKILL does not stop the sandbox.
#[test]
fn a_kill_by_a_stranger_is_no_stop() {
    let mut story = running();
    story.at(200).kill(Who::new(900, 899, "bash"), SLEEP, 9).until(300 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);
}

/// The grace period begins with the end of the last container, not with that of pause.
#[test]
fn a_stop_long_after_the_pause_process_was_killed_is_not_stuck() {
    let mut story = running();
    story.at(200).exit(containerd::PAUSE, TOP | class::PAUSE, 9);
    story.until(599 * SECOND).on_record(&['a']).until(600 * SECOND).exit(SLEEP, TOP, 9);
    story.until(602 * SECOND).cni(784, CONTAINERD, BRIDGE, "DEL", PATH);
    story.until(604 * SECOND).exit(plugin(784), class::CNI, 0x100).until(610 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);

    // From then on it counts like any other.
    story.until(725 * SECOND).on_record(&['a']).until(730 * SECOND).moment();
    assert!(told(&story).iter().any(|line| line.contains("finding.confirmed")), "{:?}", story.run());

    // The successful call is not counted as a failed one.
    story.cni(785, CONTAINERD, BRIDGE, "DEL", PATH).until(733 * SECOND).exit(plugin(785), class::CNI, 0);
    story.cni_done(786, "/usr/lib/cni/loopback", "DEL", PATH).until(736 * SECOND).moment();
    story.dropped(POD_NETNS, 7).until(738 * SECOND).moment();
    let (_, engine) = story.judge(739 * SECOND);
    let closed = engine.findings().find(|it| matches!(it.kind, Kind::StuckStop(_))).expect("it is kept");
    assert!(closed.closed_at.is_some(), "{closed:?}");
    assert_eq!(
        closed.kind.explain().summary(),
        "DEL of bridge was called 1 time and did not succeed, last with exit 1"
    );
}

/// A plugin that is no longer in the chain is not called with DEL.
#[test]
fn a_chain_that_changed_since_add_is_released_by_what_is_called() {
    let mut story = running();
    story.at(200).exit(SLEEP, TOP, 0);
    story.exit(containerd::PAUSE, TOP | class::PAUSE, 9);
    story.cni_done(784, "/usr/lib/cni/loopback", "DEL", PATH);
    story.cni_done(785, "/usr/lib/cni/cilium", "DEL", PATH);
    story.dropped(POD_NETNS, 7).freed(POD_NETNS);
    story
        .until(119 * SECOND)
        .on_record(&['a'])
        .until(300 * SECOND)
        .on_record(&['a'])
        .until(310 * SECOND)
        .moment();
    assert_eq!(told(&story), [""; 0]);
}

/// ADD hangs until it is killed, and so does the DEL of its plugin. The DEL of the chain's next plugin
/// succeeds.
#[test]
fn a_sandbox_whose_add_was_killed_is_released_by_no_plugin_of_its_chain() {
    let mut story = up();
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    story.at(20).cni(701, CONTAINERD, BRIDGE, "ADD", PATH);
    story.at(40 * SECOND).exit(plugin(701), class::CNI, 9).on_record(&['a']);
    for (pid, at) in [(710, 41), (720, 90)] {
        story.until(at * SECOND);
        story.cni_done(pid, "/usr/lib/cni/portmap", "DEL", PATH);
        story.cni(pid + 1, CONTAINERD, BRIDGE, "DEL", PATH);
        story.until((at + 20) * SECOND).exit(plugin(pid + 1), class::CNI, 9);
    }
    // The kubelet tries again only after a while.
    for at in [120, 231, 300, 360] {
        let (netns, mounts) = (NetnsKey::new(POD_NETNS, 7), vec![PATH.to_owned()]);
        story.until(at * SECOND).list(List::Netns, true, |story| {
            story.listed(Fact::NetnsFound { netns, mounts, vacant: true });
        });
        story.on_record(&['a']);
    }
    story.until(400 * SECOND).moment();
    let (all, _) = story.judge(400 * SECOND);
    assert!(all.contains(" cni_failing/bridge/DEL"), "{all}");
    assert_eq!(told(&story), [""; 0]);
}

/// The runtime is restarted while it tries DEL again. The call that it broke off says nothing about the
/// plugin.
#[test]
fn the_exit_code_is_that_of_the_failure_and_not_of_the_call_that_a_restart_cut_off() {
    let codes = |failures: usize, last_netns: &str| {
        let mut story = running();
        story.at(200).exit(SLEEP, TOP, 0).exit(containerd::PAUSE, TOP | class::PAUSE, 9);
        let mut pids = 784..;
        for pid in pids.by_ref().take(failures) {
            story.cni(pid, CONTAINERD, BRIDGE, "DEL", PATH).exit(plugin(pid), class::CNI, 0x100);
        }
        let pid = pids.next().expect("a pid");
        story.cni(pid, CONTAINERD, BRIDGE, "DEL", last_netns).exit(DAEMON, class::CALLER, 9);
        story.exit(plugin(pid), class::CNI, 9);
        story.exec(Who::new(950, 1, "containerd"), class::CALLER, "/usr/bin/containerd");
        story.until(300 * SECOND).on_record(&['a']);
        let (_, engine) = story.judge(310 * SECOND);
        let stops = engine.findings().filter_map(|it| {
            let Kind::StuckStop(stop) = &it.kind else { return None };
            Some((stop.attempts, stop.exit_code))
        });
        stops.collect::<Vec<_>>()
    };
    // The runtime no longer names the namespace once it is gone.
    for last_netns in [PATH, ""] {
        assert_eq!(codes(3, last_netns), [(4, Some(1))], "{last_netns:?}");
        assert_eq!(codes(0, last_netns), [(1, Some(137))], "there is no other");
    }
}

/// The last boot left it in the runtime's records, and nothing else of it exists. A new agent judges it like
/// the others.
#[test]
fn a_stop_of_a_sandbox_that_only_the_records_have_is_open_over_a_restart_of_the_agent() {
    let mut story = up();
    story.at(90).on_record(&['a']);
    story.at(20 * SECOND).cni(701, CONTAINERD, BRIDGE, "DEL", "").exit(plugin(701), class::CNI, 0x100);
    story.until(300 * SECOND).on_record(&['a']);
    let (told, engine) = story.judge(310 * SECOND);
    assert!(told.contains("finding.confirmed stuck_stop/"), "{told}");
    let mut next = Story::new();
    next.restored = engine.dump();
    next.at(311 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since: None });
    let (told, engine) = next.judge(320 * SECOND);
    assert!(!told.contains("finding."), "{told}");
    assert_eq!(engine.findings().filter(|it| matches!(it.kind, Kind::StuckStop(_))).count(), 1);
}

/// RunPodSandbox failed, and the runtime kept its record. Somebody cleans up much later.
#[test]
fn a_clean_up_of_what_only_the_records_have_is_stuck_from_its_own_beginning() {
    let mut story = up();
    story.at(90).on_record(&['a']).until(900 * SECOND).on_record(&['a']);
    story.cni(701, CONTAINERD, BRIDGE, "DEL", "").until(905 * SECOND).exit(plugin(701), class::CNI, 0x100);
    story.until(930 * SECOND).moment();
    assert_eq!(told(&story), [""; 0], "the kubelet tries again");
    let mut mended = story.clone();
    mended.cni_done(702, BRIDGE, "DEL", "").until(1200 * SECOND).on_record(&['a']);
    mended.until(1300 * SECOND).moment();
    assert_eq!(told(&mended), [""; 0]);

    story.until(1015 * SECOND).on_record(&['a']).until(1019 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);
    story.until(1021 * SECOND).on_record(&['a']).until(1023 * SECOND).moment();
    let (_, engine) = story.judge(1024 * SECOND);
    let told = engine.findings().find(|it| matches!(it.kind, Kind::StuckStop(_))).expect("it is told");
    let summary = "DEL of bridge was called 1 time and did not succeed, last with exit 1";
    assert_eq!(told.kind.explain().summary(), summary);
    assert_eq!(told.since, ms(900 * SECOND + 1));
    assert_eq!(told.pod.as_ref().and_then(|pod| pod.name.as_deref()), Some("web-0"));
    let evidence: Vec<_> = told.evidence.iter().map(|it| it.event.at).collect();
    assert_eq!(evidence, [ms(900 * SECOND + 1), ms(905 * SECOND)], "the call, and its end");
}

/// A plugin that does not answer is cni_slow, until the runtime gives it up.
#[test]
fn no_stop_is_stuck_while_its_first_del_runs() {
    let mut story = up();
    story.at(90).on_record(&['a']).until(900 * SECOND).on_record(&['a']);
    story.cni(701, CONTAINERD, BRIDGE, "DEL", "");
    story.until(1050 * SECOND).on_record(&['a']).until(1100 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);
    story.exit(plugin(701), class::CNI, 9).until(1103 * SECOND).moment();
    assert!(told(&story).iter().any(|line| line.contains("finding.confirmed")), "{:?}", story.run());
}

/// An earlier stop succeeded. The record stayed, and DEL fails from now on.
#[test]
fn a_del_that_fails_after_one_that_succeeded_is_named() {
    let mut story = up();
    story.at(90).on_record(&['a']).until(900 * SECOND);
    story.cni_done(701, BRIDGE, "DEL", "");
    for (pid, at) in [(702, 1000), (703, 1060), (704, 1130)] {
        story.until(at * SECOND).cni(pid, CONTAINERD, BRIDGE, "DEL", "").exit(plugin(pid), class::CNI, 0x100);
    }
    story.until(1140 * SECOND).on_record(&['a']);
    let (told, engine) = story.judge(1145 * SECOND);
    assert!(told.contains(" cni_failing/bridge/DEL"), "{told}");
    let stop = engine.findings().find(|it| matches!(it.kind, Kind::StuckStop(_))).expect("it is told");
    let summary = "DEL of bridge was called 3 times and did not succeed, last with exit 1";
    assert_eq!(stop.kind.explain().summary(), summary);
}

/// Pause outlives the SIGKILL of the runtime. Then a person kills it, and the stop goes on: its next step has
/// its own time.
#[test]
fn a_stop_that_a_person_sets_free_is_not_stuck_at_its_next_step() {
    let runc = Who::new(713, SHIM, "runc");
    let mut story = running();
    story.at(200).exit(SLEEP, TOP, 0).exec(runc, class::RUNTIME, &format!("runc kill {} 9", id('a')));
    story.kill(runc, containerd::PAUSE, 9).exit(runc, class::RUNTIME, 0);
    story.until(119 * SECOND).on_record(&['a']).until(130 * SECOND).moment();
    assert!(told(&story).iter().any(|line| line.contains("finding.confirmed")), "{:?}", story.run());
    story.exit(containerd::PAUSE, TOP | class::PAUSE, 9).until(133 * SECOND).moment();
    let (_, engine) = story.judge(133 * SECOND);
    let closed = engine.findings().find(|it| matches!(it.kind, Kind::StuckStop(_))).expect("it is kept");
    assert_eq!(closed.kind.explain().summary(), "pause[644] runs on after SIGKILL");
    assert_eq!(closed.closed_at.map(|at| at.0 / 1_000_000_000), Some(130), "{closed:?}");

    // A DEL that is never called is a problem of its own, after its own time.
    story.until(251 * SECOND).on_record(&['a']).until(255 * SECOND).moment();
    let (_, engine) = story.judge(255 * SECOND);
    let open = engine.findings().find(|it| matches!(it.kind, Kind::StuckStop(_))).expect("it is told");
    assert_eq!(
        (open.kind.explain().summary().as_str(), open.closed_at),
        ("DEL of portmap is not called", None)
    );
}

#[test]
fn what_is_open_is_said_in_a_line() {
    let del = |attempts, plugin: Option<&str>, exit_code, cache_file: Option<&str>| {
        let it = StuckStop {
            step: StopStep::Del,
            process: None,
            attempts,
            plugin: plugin.map(str::to_owned),
            exit_code,
            cache_file: cache_file.map(str::to_owned),
            mount: None,
            said: Vec::new(),
            unsaid: None,
        };
        (it.summary(), Kind::from(it.clone()).explain().repair(&[id('a')], &[]))
    };
    let (summary, repair) = del(0, Some("bridge"), None, Some("/var/lib/cni/results/podnet-a-eth0"));
    assert_eq!(
        summary,
        "DEL is not called: libcni's cache file /var/lib/cni/results/podnet-a-eth0 cannot be decoded"
    );
    assert_eq!(
        repair.last().map(String::as_str),
        Some("mv -- '/var/lib/cni/results/podnet-a-eth0' '/var/lib/cni'/")
    );
    assert_eq!(del(0, Some("bridge"), None, None).0, "DEL of bridge is not called");
    let (summary, repair) = del(3, Some("bridge"), Some(1), None);
    assert_eq!(summary, "DEL of bridge was called 3 times and did not succeed, last with exit 1");
    let last = repair.last().map(String::as_str).unwrap_or_default();
    assert!(
        last.starts_with("running=$(crictl ps -q --pod ")
            && last.ends_with(&format!("crictl stopp {}", id('a')))
    );
}

/// The first `ip netns add` mounts the folder over itself.
#[test]
fn a_second_mount_of_the_folder_is_looked_for_before_the_processes_that_have_the_file_mounted() {
    let repair = |step, mount: Option<&str>| {
        let it = StuckStop {
            step,
            process: None,
            attempts: 0,
            plugin: None,
            exit_code: None,
            cache_file: None,
            mount: mount.map(str::to_owned),
            said: Vec::new(),
            unsaid: None,
        };
        let mut all = it.repair(&[id('a')], &[]);
        all.retain(|line| line.contains("mountinfo"));
        all
    };
    for mount in ["/run/netns/cni-1", "/var/run/netns/cni-1"] {
        assert_eq!(
            repair(StopStep::Unmount, Some(mount)),
            [
                "awk '$5 == \"/\" || $5 == \"/run/netns\"' /proc/1/mountinfo",
                "grep -lF -- '/run/netns/cni-1' /proc/[0-9]*/mountinfo"
            ]
        );
    }
    assert_eq!(repair(StopStep::Del, None), [""; 0]);
}

#[test]
fn a_torn_file_is_moved_to_where_only_root_writes_and_libcni_does_not_read() {
    for shell in ["dash", "bash"] {
        let cni = tempfile::Builder::new().prefix("it's cni").tempdir().expect("a folder");
        let torn = cni.path().join("results/podnet-a-eth0");
        let it = StuckStop {
            step: StopStep::Del,
            process: None,
            attempts: 0,
            plugin: None,
            exit_code: None,
            cache_file: torn.to_str().map(str::to_owned),
            mount: None,
            said: Vec::new(),
            unsaid: None,
        };
        let repair = it.repair(&[id('a')], &[]).join("\n");
        let script = format!(
            "mkdir results && echo torn >results/podnet-a-eth0\n{repair}\nls results && cat podnet-a-eth0"
        );
        let done =
            Command::new(shell).args(["-c", &script]).current_dir(cni.path()).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "torn\n", "{shell}: {done:?}");
    }
}

/// If a stop is tried for hours, the first and the last events are kept, and the number of events between
/// them.
#[test]
fn evidence_that_is_not_kept_is_counted() {
    let mut story = running();
    story.at(200).exit(SLEEP, TOP, 0);
    story.exit(containerd::PAUSE, TOP | class::PAUSE, 9);
    for attempt in 0..110_u32 {
        let pid = 2000 + attempt;
        story.until((1 + u64::from(attempt)) * SECOND);
        story.cni(pid, CONTAINERD, BRIDGE, "DEL", PATH).exit(plugin(pid), class::CNI, 0x100);
    }
    let (_, engine) = story.until(119 * SECOND).judge(119 * SECOND);
    let told = engine.told_of(&id('a')).expect("it is known");
    let left_out: Vec<_> = told.events.iter().map(|event| event.left_out).collect();
    let hole = left_out[31];
    assert_eq!((left_out.len(), left_out.iter().sum::<u32>()), (96, hole), "{left_out:?}");
    // Two of each DEL, and what came before.
    assert!(hole > 2 * 110 - 96, "{hole}");
}
