//! The network namespaces and processes that sandboxes leave behind.

use probe_common::event::class;

use super::{
    containerd::{self, PATH, PAUSE, TOP},
    story::{CONTAINERD, DAEMON, KUBELET, POD_NETNS, SHIM, Story, UID, Who, cgroup, id, leaf, pod_name},
};
use crate::model::{
    fact::{
        Bound, Fact, Holder, List, Loss, Mechanism, Origin, Reservation, ReservationState, Role, RuntimeKind,
        RuntimeRead, RuntimeSandbox, Signal, Store, StoreKind, StoreRead,
    },
    id::NetnsKey,
    time::Timestamp,
};

const PIN: &str = "/run/netns/cni-11111111-2222-3333-4444-000000000001";
const OTHER: u32 = POD_NETNS + 1;
const ADMIN: Who = Who::new(900, 899, "ip");

/// Both daemons and the shim run.
fn daemons(story: &mut Story) {
    story.list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
    });
}

fn netns(story: &mut Story, inode: u32, mounts: &[&str], vacant: bool) {
    let mounts = mounts.iter().map(|path| (*path).to_owned()).collect();
    story.list(List::Netns, true, |story| {
        story.listed(Fact::NetnsFound { netns: NetnsKey::new(inode, 0), mounts, vacant });
    });
}

/// A sandbox that ran and is over, while its namespace did not end.
fn over() -> Story {
    let mut story = Story::new();
    daemons(story.at(1));
    containerd::start(&mut story);
    story.at(90).on_record(&['a']);
    story.at(100).exit(PAUSE, TOP | class::PAUSE, 0).rmdir(21, &leaf('a'));
    story.at(110).cni_done(784, "/usr/lib/cni/bridge", "DEL", PATH);
    story
}

#[test]
fn a_namespace_that_a_file_keeps_after_its_sandbox_is_an_orphan() {
    let mut story = over();
    story.until(1000).on_record(&[]);
    story.until(126_000).on_record(&[]).until(127_500).moment();
    story.until(128_000).on_record(&[]);
    netns(&mut story, POD_NETNS, &[PATH, "/mnt/stray"], true);
    story.until(129_000).moment().until(140_000).dropped(POD_NETNS, 7).until(141_000).moment();
    story.check_findings(
        "
            ? relist
            128099 finding.opened orphan_netns/:var:run:netns:cni-732a3502 [default/web-0 a] Agent
            128099 finding.confirmed orphan_netns/:var:run:netns:cni-732a3502 [default/web-0 a] Agent
            140099 finding.closed orphan_netns/:var:run:netns:cni-732a3502 [default/web-0 a] Agent
        ",
    );
}

#[test]
fn one_that_its_runtime_is_still_to_clean_up_or_somebody_is_in_is_none() {
    for (kept, vacant) in [(&['a'][..], true), (&[], false)] {
        let mut story = over();
        story.until(1000).on_record(kept);
        story.until(128_000).on_record(kept);
        netns(&mut story, POD_NETNS, &[PATH], vacant);
        story.until(129_000).moment();
        let told = story.run().into_iter().filter(|line| line.contains(" orphan_")).collect::<Vec<_>>();
        assert!(told.is_empty(), "{told:?}");
    }
}

/// An interface in another namespace holds it: no list has it, and the kernel does not end it. Its pod is
/// gone.
#[test]
fn a_namespace_that_something_pins_outlives_its_pod_and_is_reported() {
    for is_freed in [false, true] {
        let mut story = over();
        story.attached(Signal::NetnsDropped, Some(Mechanism::Kprobe));
        story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
        story.until(1000).on_record(&[]).until(126_000).on_record(&[]).until(127_500).moment();
        story.until(128_000).list(List::Netns, true, |_| {});
        story.until(300_000).moment();
        let engine = story.judge(300_500).1;
        assert!(!engine.world.pods.values().any(|row| row.is_present()), "the namespace is no pod");
        if is_freed {
            story.until(600_000).dropped(POD_NETNS, 7);
        }
        story.until(1_929_000).moment().until(1_930_000).list(List::Netns, true, |_| {});
        story.until(2_000_000).on_record(&[]).moment();
        let told = story.run();
        let is_told = told
            .iter()
            .any(|line| line.contains("finding.confirmed orphan_netns/") && line.contains("web-0"));
        assert_eq!(is_told, !is_freed, "{told:#?}");
    }
}

/// A listing can fall between the moment when the runtime lets go of the namespace and its end.
#[test]
fn a_pod_is_gone_after_the_namespace_that_is_about_to_end() {
    let mut story = over();
    story.attached(Signal::NetnsDropped, Some(Mechanism::Kprobe));
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.until(1000).list(List::Netns, true, |_| {}).until(2000).dropped(POD_NETNS, 7);
    let told = story.run();
    let at = |name: &str| told.iter().position(|line| line.contains(name)).expect(name);
    assert!(at(" netns.destroyed") < at(" pod.gone"), "{told:#?}");
}

/// If a listing that was asked for does not find the namespace, no further listing is asked for.
#[test]
fn one_that_no_file_holds_is_asked_for_once() {
    let mut story = over();
    story.until(1000).on_record(&[]).until(126_000).on_record(&[]);
    story.until(600_000);
    story.check_findings("? relist");
}

/// A listing that could not read everything proves nothing.
#[test]
fn one_that_a_listing_may_have_missed_is_asked_for_again() {
    for is_there in [true, false] {
        let mut story = over();
        story.until(1000).on_record(&[]).until(126_000).on_record(&[]).until(127_500).moment();
        story.until(128_000).list(List::Netns, false, |_| {}).until(200_000).list(List::Netns, false, |_| {});
        story.until(230_000);
        if is_there {
            netns(&mut story, POD_NETNS, &[PATH], true);
        } else {
            story.list(List::Netns, true, |_| {});
        }
        story.until(600_000);
        let told = story.run();
        assert_eq!(told.iter().filter(|line| *line == "? relist").count(), 2, "{told:#?}");
        let is_told = told.iter().any(|line| line.contains("finding.confirmed orphan_netns/"));
        assert_eq!(is_told, is_there, "{told:#?}");
    }
}

/// The namespace existed when the agent started, and only its name shows that it is a sandbox's. There are
/// two listings, with the grace time between them.
#[test]
fn a_pin_that_no_sandbox_has_is_an_orphan() {
    let mut story = Story::new();
    daemons(story.at(1));
    story.at(10).on_record(&[]);
    netns(story.at(20), OTHER, &[PIN], true);
    story.until(60_000).on_record(&[]);
    story.until(126_000).on_record(&[]).until(128_000).moment();
    netns(story.until(129_000), OTHER, &[PIN], true);
    story.until(130_000).moment();
    story.check_findings(
        "
            60099 finding.opened orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
            ? relist
            129099 finding.confirmed orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
        ",
    );
}

/// The agent starts while a namespace is removed: its first listing has it, and netlink no longer finds it.
/// Without a hook at its end nothing reports that it is over, so it is not a candidate until a listing has it
/// again.
#[test]
fn one_that_ends_between_the_listing_and_its_watch_is_no_candidate() {
    for is_there in [false, true] {
        let mut story = Story::new();
        story.attached(Signal::NetnsDropped, Some(Mechanism::Netlink));
        daemons(story.at(1));
        story.at(10).on_record(&[]);
        netns(story.at(20), OTHER, &[PIN], true);
        story.until(1000).say(
            Origin::Netlink,
            Fact::NetnsUnwatched { netns: NetnsKey::new(OTHER, 0), unheard_since: None },
        );
        story.until(60_000).on_record(&[]);
        story.until(126_000).on_record(&[]).until(128_000).moment();
        story.list(List::Netns, true, |story| {
            if is_there {
                let mounts = vec![PIN.to_owned()];
                story.listed(Fact::NetnsFound { netns: NetnsKey::new(OTHER, 0), mounts, vacant: true });
            }
        });
        story.until(130_000).moment();
        let confirmed = "
            128099 finding.opened orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
            128099 finding.confirmed orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent";
        story.check_findings(&format!("? relist{}", if is_there { confirmed } else { "" }));
    }
}

/// The agent has listed the namespaces. Then somebody makes one.
fn made_while_the_agent_runs() -> Story {
    let mut story = Story::new();
    daemons(story.at(1));
    story.at(10).on_record(&[]).list(List::Netns, true, |_| {});
    story.until(1000).netns(ADMIN, OTHER, 0);
    story
}

/// No hook reports the file to which a namespace is bound. So a listing is asked for after a quarter of the
/// grace time.
#[test]
fn a_pin_that_is_made_while_the_agent_runs_is_looked_for() {
    let mut story = made_while_the_agent_runs();
    story.until(29_000).moment().until(38_000).moment();
    netns(story.until(39_000), OTHER, &[PIN], true);
    story.until(40_000).on_record(&[]).until(75_000).moment();
    story.until(160_000).on_record(&[]).until(165_000).moment();
    netns(story.until(166_000), OTHER, &[PIN], true);
    story.until(167_000).moment();
    story.check_findings(
        "
            ? relist
            69001 finding.opened orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
            ? relist
            166099 finding.confirmed orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
        ",
    );
}

/// A service has a namespace of its own. One listing shows that no file holds it, and no second listing is
/// asked for.
#[test]
fn one_of_another_that_is_made_while_the_agent_runs_is_looked_for_once() {
    let mut story = made_while_the_agent_runs();
    story.until(38_000).moment();
    story.list(List::Netns, true, |story| {
        story.listed(Fact::NetnsFound { netns: NetnsKey::new(OTHER, 0), mounts: Vec::new(), vacant: false });
    });
    story.until(900_000).on_record(&[]).moment();
    story.check_findings("? relist");
}

/// An IPAM store in which sandbox `a` has an address.
fn store() -> StoreRead {
    let path = "/var/lib/cni/networks/podnet".to_owned();
    let held = Reservation {
        address: "10.1.0.2".parse().expect("an address"),
        holder: Some(Holder { container: id('a'), ifname: "eth0".to_owned() }),
        since: Timestamp::ZERO,
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    };
    StoreRead {
        store: Store {
            kind: StoreKind::HostLocal,
            path,
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        },
        reservations: vec![held],
        complete: true,
    }
}

/// The runtime and all its processes were killed, and its records are gone. An agent that starts later finds
/// what is left.
fn leftover(populated: bool, kept: &[char]) -> Story {
    let mut story = Story::new();
    daemons(story.at(1));
    let cgroups = |story: &mut Story| {
        story.list(List::Cgroups, true, |story| {
            let pod = format!("/kubepods/besteffort/pod{UID}");
            story.listed(Fact::CgroupFound { cgroup: cgroup(20, &pod), populated });
            story.listed(Fact::CgroupFound { cgroup: cgroup(21, &leaf('a')), populated });
        });
    };
    cgroups(story.until(10_000));
    story.container('a', Role::Sandbox, 'a', "");
    netns(story.until(10_020), POD_NETNS, &[PIN], true);
    for at in [11_000, 30_000, 60_000, 126_000, 180_000] {
        story.until(at).list(List::Runtimes, true, |story| {
            story.on_record(kept);
        });
        story.list(List::Ipam, true, |story| {
            story.listed(Fact::StoreRead(store()));
        });
        story.moment();
        netns(&mut story, POD_NETNS, &[PIN], true);
        cgroups(&mut story);
    }
    story.until(181_000).moment();
    story
}

#[test]
fn what_is_left_of_a_sandbox_that_no_runtime_knows_hides_nothing() {
    leftover(false, &[]).check_findings(
        "
            40021 finding.opened orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
            60002 finding.opened stuck_cgroup/11111111-2222-3333-4444-555555555555 [default/web-0 a] Agent
            60103 finding.opened leaked_address/podnet/10.1.0.2/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa [default/web-0 a] Agent
            180099 finding.confirmed leaked_address/podnet/10.1.0.2/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa [default/web-0 a] Agent
            180099 finding.confirmed orphan_netns/cni-11111111-2222-3333-4444-000000000001 Agent
            180099 finding.confirmed stuck_cgroup/11111111-2222-3333-4444-555555555555 [default/web-0 a] Agent
        ",
    );
    for (populated, kept) in [(true, &[][..]), (false, &['a'])] {
        leftover(populated, kept).check_findings("");
    }
}

#[test]
fn namespaces_of_others_and_those_that_may_be_a_sandboxs_are_none() {
    let docker = "/run/docker/netns/0123456789ab";
    let bare = "/run/netns/11111111-2222-3333-4444-000000000001";
    let router = "/run/netns/qrouter-11111111-2222-3333-4444-000000000001";
    for (mount, kept) in
        [(docker, &[][..]), (bare, &[]), (router, &[]), ("/run/netns/blue", &[]), (PIN, &['b'])]
    {
        let mut story = Story::new();
        daemons(story.at(1));
        story.at(10).on_record(kept);
        netns(story.at(20), OTHER, &[mount], true);
        story.until(126_000).on_record(kept).until(128_000).moment();
        netns(story.until(129_000), OTHER, &[mount], true);
        story.until(130_000).moment();
        story.check_findings("");
    }
}

/// The record of the sandbox's ADD may be lost. Its record of the runtime exists and names no namespace.
#[test]
fn across_a_gap_a_namespace_may_be_of_the_sandbox_that_was_not_seen() {
    let mut story = Story::new();
    daemons(story.at(1));
    story.at(10).say(Origin::Agent, Fact::Lost { what: Loss::LifecycleRing, count: 1, since: None });
    netns(story.at(20), OTHER, &[PIN], true);
    story.until(1000).on_record(&['b']);
    story.until(126_000).on_record(&['b']);
    netns(story.until(129_000), OTHER, &[PIN], true);
    story.until(130_000).moment();
    // It is asked for at once, and again after a quiet time.
    story.check_findings("? relist\n? relist");
}

/// A name as CRI-O gives it.
const BARE: &str = "/run/netns/11111111-2222-3333-4444-000000000001";
const CRIO: Who = Who::new(570, 1, "crio");

fn crio_has(story: &mut Story, sandboxes: &[char]) {
    crio_read(story, sandboxes, true);
}

fn crio_read(story: &mut Story, sandboxes: &[char], complete: bool) {
    let sandbox = |digit: &char| RuntimeSandbox { id: id(*digit), pod: Some(pod_name()) };
    let place = "/var/lib/containers/storage/overlay-containers/containers.json".to_owned();
    let sandboxes = sandboxes.iter().map(sandbox).collect();
    let read = RuntimeRead { place, kind: Some(RuntimeKind::Crio), sandboxes, complete, unread: 0 };
    story.listed(Fact::RuntimeRead(read));
}

/// A node with CRI-O, and a namespace that only its name shows to be CRI-O's.
fn crio() -> Story {
    let mut story = Story::new();
    story.at(1).list(List::Processes, true, |story| {
        story.found(CRIO, CRIO.pid, "/system.slice/crio.service", "/usr/bin/crio");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
    });
    crio_has(story.at(10), &[]);
    netns(story.at(20), OTHER, &[BARE], true);
    story
}

/// CRI-O ends and runs again ten seconds later. Its files can be read in between.
fn crio_restarts(story: &mut Story, at: u64) {
    let again = Who { pid: u32::try_from((at + 10_000) / 10).expect("soon"), ..CRIO };
    story.until(at).exit(CRIO, class::CALLER, 0);
    netns(story.until(at + 5000), OTHER, &[BARE], true);
    story.until(at + 10_000).exec(again, class::CALLER, "/usr/bin/crio");
}

#[test]
fn an_orphan_of_crio_stays_one_while_crio_restarts() {
    let mut story = crio();
    crio_has(story.until(60_000), &[]);
    crio_has(story.until(126_000), &[]);
    netns(story.until(129_000), OTHER, &[BARE], true);
    crio_restarts(&mut story, 140_000);
    crio_has(story.until(280_000), &[]);
    netns(story.until(285_000), OTHER, &[BARE], true);
    story.until(286_000).moment();
    story.check_findings(
        "
            60099 finding.opened orphan_netns/11111111-2222-3333-4444-000000000001 Agent
            ? relist
            129099 finding.confirmed orphan_netns/11111111-2222-3333-4444-000000000001 Agent
            ? relist
        ",
    );
}

/// The grace time of CRI-O begins with its restart.
#[test]
fn nothing_of_crio_is_reported_while_it_restarts_and_for_the_grace_after() {
    let mut story = crio();
    crio_restarts(&mut story, 25_000);
    crio_has(story.until(60_000), &[]);
    netns(story.until(62_000), OTHER, &[BARE], true);
    story.until(63_000).moment();
    story.check_findings("");
    crio_has(story.until(66_000), &[]);
    crio_has(story.until(155_500), &[]);
    netns(story.until(158_000), OTHER, &[BARE], true);
    story.until(159_000).moment();
    story.check_findings(
        "
            65000 finding.opened orphan_netns/11111111-2222-3333-4444-000000000001 Agent
            ? relist
            158099 finding.confirmed orphan_netns/11111111-2222-3333-4444-000000000001 Agent
        ",
    );
}

/// A sandbox without a process and without a running container is only a file.
#[test]
fn the_sandboxes_of_crio_are_no_orphans_while_it_restarts() {
    let mut story = crio();
    crio_has(story.until(21_000), &['b']);
    crio_restarts(&mut story, 145_000);
    // CRI-O is writing its records at that moment.
    crio_read(story.until(156_000), &[], false);
    netns(story.until(160_000), OTHER, &[BARE], true);
    crio_has(story.until(200_000), &['b']);
    netns(story.until(205_000), OTHER, &[BARE], true);
    story.until(206_000).moment();
    story.check_findings("");
}

fn found(story: &mut Story, complete: bool) {
    story.list(List::Processes, complete, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        story.found(PAUSE, 1, &leaf('a'), "/pause");
    });
}

#[test]
fn a_pause_that_no_runtime_knows_is_an_orphan() {
    let mut story = Story::new();
    daemons(story.at(1));
    containerd::start(&mut story);
    story.at(90).on_record(&['a']).until(60_000).on_record(&[]);
    story.until(181_000).on_record(&[]).until(182_500).moment();
    found(story.until(183_000), true);
    story.until(184_000).moment().until(190_000).exit(PAUSE, TOP | class::PAUSE, 9);
    let shim = Who::new(SHIM, 617, "containerd-shim");
    story.until(190_500).exit(shim, class::RUNTIME, 0).until(191_000).moment();
    let key = format!("orphan_sandbox/{}", id('a'));
    story.check_findings(&format!(
        "
            ? relist
            183099 finding.opened {key} [default/web-0 a] Agent
            183099 finding.confirmed {key} [default/web-0 a] Agent
            190599 finding.closed {key} [default/web-0 a] Agent
        "
    ));
}

/// The record comes after the sandbox's network. An incomplete reading does not show that a record is
/// missing.
#[test]
fn a_young_sandbox_and_one_whose_records_are_unknown_are_none() {
    let mut story = Story::new();
    daemons(story.at(1));
    story.at(5).on_record(&[]);
    containerd::start(&mut story);
    story.at(90).on_record(&[]).until(60_000).on_record(&['a']);
    story.until(181_000).on_record(&['a']).until(183_000).moment();
    story.check_findings("");

    let mut story = Story::new();
    daemons(story.at(1));
    containerd::start(&mut story);
    story.until(60_000).moment().until(300_000).moment();
    story.check_findings("");
}

#[test]
fn between_a_gap_and_its_listing_nobody_is_an_orphan() {
    let mut story = Story::new();
    daemons(story.at(1));
    containerd::start(&mut story);
    story.until(60_000).on_record(&[]);
    story.until(100_000).say(Origin::Agent, Fact::Lost { what: Loss::LifecycleRing, count: 1, since: None });
    story.until(181_000).on_record(&[]);
    found(story.until(183_000), false);
    story.until(300_000).moment();
    let told = story.run().into_iter().filter(|line| line.contains(" orphan_")).collect::<Vec<_>>();
    assert!(told.is_empty(), "{told:?}");
}
