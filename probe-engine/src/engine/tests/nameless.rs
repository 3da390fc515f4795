//! Records that name a sandbox without its pod, as containerd's folders do.

use probe_common::event::class;

use super::{
    containerd::{self, PAUSE, TOP},
    story::{CONTAINERD, DAEMON, KUBELET, POD_NETNS, SHIM, Story, UID, Who, cgroup, id, leaf, pod_name},
};
use crate::model::{
    fact::{Fact, List, PodName, RuntimeKind, RuntimeRead, RuntimeSandbox},
    id::{NetnsKey, PodUid},
};

const MINUTE: u64 = 60_000;

/// The sandboxes in containerd's folders, and those in the answer of its socket. Pod `a` is the story's. The
/// others are of other pods.
fn read(story: &mut Story, folders: &[char], socket: Option<&[char]>) {
    story.list(List::Runtimes, true, |story| {
        let nameless = |digit: &char| RuntimeSandbox { id: id(*digit), pod: None };
        said(story, "/var/lib/containerd", folders.iter().map(nameless).collect());
        if let Some(digits) = socket {
            said(story, "/run/containerd/containerd.sock", digits.iter().map(named).collect());
        }
    });
}

fn named(digit: &char) -> RuntimeSandbox {
    let uid = PodUid::parse("99999999-2222-3333-4444-555555555555");
    let other = PodName { namespace: Some("default".to_owned()), name: Some("job".to_owned()), uid };
    RuntimeSandbox { id: id(*digit), pod: Some(if *digit == 'a' { pod_name() } else { other }) }
}

fn said(story: &mut Story, place: &str, sandboxes: Vec<RuntimeSandbox>) {
    let (place, kind) = (place.to_owned(), Some(RuntimeKind::Containerd));
    story.listed(Fact::RuntimeRead(RuntimeRead { place, kind, sandboxes, complete: true, unread: 0 }));
}

fn processes(story: &mut Story, pause: bool) {
    story.list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        if pause {
            story.found(PAUSE, 1, &leaf('a'), "/pause");
        }
    });
}

fn told(story: &Story, kind: &str) -> Vec<String> {
    let of_kind = |line: &String| line.contains(&format!(" {kind}/"));
    let mut lines: Vec<String> = story.run().into_iter().filter(of_kind).collect();
    for line in &mut lines {
        *line = line.split(' ').nth(1).unwrap_or_default().to_owned();
    }
    lines
}

/// The runtime forgets pod `a` while its pause process lives. `before` and `after` are the other records:
/// those of the folders and those of the socket.
fn forgotten(before: (&[char], Option<&[char]>), after: (&[char], Option<&[char]>)) -> Vec<String> {
    let mut story = Story::new();
    processes(story.at(1), false);
    read(story.at(5), before.0, before.1);
    containerd::start(&mut story);
    for at in [MINUTE, 3 * MINUTE + 1000] {
        read(story.until(at), after.0, after.1);
    }
    story.until(3 * MINUTE + 2500).moment();
    processes(story.until(3 * MINUTE + 3000), true);
    story.until(3 * MINUTE + 4000).moment();
    told(&story, "orphan_sandbox")
}

const FOUND: [&str; 2] = ["finding.opened", "finding.confirmed"];

#[test]
fn a_record_that_another_source_names_hides_no_orphan() {
    // A sandbox of a completed Job from before the agent: its folder has only an id.
    assert_eq!(forgotten((&['b'], Some(&['b'])), (&['b'], Some(&['b']))), FOUND);
    // This sandbox came on record after the pod was made.
    assert_eq!(forgotten((&[], Some(&[])), (&['b'], Some(&['b']))), FOUND);
}

#[test]
fn a_nameless_record_is_of_no_pod_that_was_made_after_it() {
    assert_eq!(forgotten((&['b'], None), (&['b'], None)), FOUND);
}

#[test]
fn a_nameless_record_that_could_be_the_pods_leaves_it_unsure() {
    assert_eq!(forgotten((&[], None), (&['b'], None)), [""; 0]);
    // One of several sandboxes. The pods of the others are known.
    assert_eq!(forgotten((&['d'], Some(&['d'])), (&['b', 'd'], Some(&['d']))), [""; 0]);
}

#[test]
fn what_one_source_names_as_the_pods_keeps_it() {
    assert_eq!(forgotten((&['a'], Some(&['a'])), (&[], Some(&['a']))), [""; 0]);
    assert_eq!(forgotten((&['b'], Some(&['b'])), (&['a', 'b'], Some(&['b']))), [""; 0]);
}

/// The cgroup of a pod that is gone, beside a folder of another pod's sandbox.
fn left(socket: Option<&[char]>, early: bool) -> Vec<String> {
    let path = format!("/kubepods/besteffort/pod{UID}");
    let directory = |story: &mut Story| {
        story.list(List::Cgroups, true, |story| {
            story.listed(Fact::CgroupFound { cgroup: cgroup(20, &path), populated: false });
        });
    };
    let mut story = Story::new();
    processes(story.at(1), false);
    read(story.at(5), if early { &['b'] } else { &[] }, socket);
    containerd::start(&mut story);
    containerd::end(&mut story);
    for at in [MINUTE, 3 * MINUTE + 1000] {
        read(story.until(at), &['b'], socket);
    }
    story.until(3 * MINUTE + 2500).moment();
    directory(story.until(3 * MINUTE + 3000));
    story.until(3 * MINUTE + 4000).moment();
    told(&story, "stuck_cgroup")
}

#[test]
fn a_nameless_record_hides_no_stuck_cgroup_unless_it_could_be_the_pods() {
    assert_eq!(left(Some(&['b']), false), FOUND);
    assert_eq!(left(None, true), FOUND);
    assert_eq!(left(None, false), [""; 0]);
}

/// A listing of processes finds both daemons and the shim of the sandbox.
fn shim_is_listed(story: &mut Story) {
    story.list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        let line = format!("containerd-shim-runc-v2 -id {} -address /x", id('a'));
        let shim = Who::new(SHIM, 617, "containerd-shim");
        story.found(shim, SHIM, "/system.slice/containerd.service", &line);
    });
}

#[test]
fn the_shim_of_a_forgotten_sandbox_is_found_beside_a_nameless_record() {
    let mut story = Story::new();
    processes(story.at(1), false);
    read(story.at(5), &['b'], None);
    containerd::start(&mut story);
    story.until(1000).exit(PAUSE, TOP | class::PAUSE, 0);
    for at in [MINUTE, 3 * MINUTE + 1000] {
        read(story.until(at), &['b'], None);
    }
    story.until(3 * MINUTE + 2500).moment();
    shim_is_listed(&mut story);
    story.until(3 * MINUTE + 4000).moment();
    assert_eq!(told(&story, "orphan_sandbox"), FOUND);
}

/// Only the shim is left: the pod's cgroup was removed, and the pod's own row is forgotten soon after.
#[test]
fn the_shim_of_a_pod_that_is_gone_is_found_beside_a_nameless_record() {
    for (early, expected) in [(true, &FOUND[..]), (false, &[])] {
        let mut story = Story::new();
        processes(story.at(1), false);
        read(story.at(5), if early { &['b'] } else { &[] }, None);
        containerd::start(&mut story);
        story.until(1000).exit(PAUSE, TOP | class::PAUSE, 0).emptied(21, &leaf('a')).rmdir(21, &leaf('a'));
        story.dropped(POD_NETNS, 7).freed(POD_NETNS);
        story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
        for at in [MINUTE, 3 * MINUTE + 1000] {
            read(story.until(at), &['b'], None);
        }
        story.until(3 * MINUTE + 2500).moment();
        shim_is_listed(&mut story);
        story.until(3 * MINUTE + 4000).moment();
        assert_eq!(told(&story, "orphan_sandbox"), expected);
    }
}

const NETNS: u32 = POD_NETNS + 1;

/// A namespace with a name as containerd gives was made at `made_at`, and no plugin was called for it. A
/// folder names a sandbox at both readings (`early`) or only at the later ones. The socket may name the
/// sandbox's pod.
fn pinned(made_at: Option<u64>, early: bool, socket: Option<&[char]>) -> Vec<String> {
    let pin = "/run/netns/cni-11111111-2222-3333-4444-000000000001".to_owned();
    let netns = |story: &mut Story| {
        story.list(List::Netns, true, |story| {
            let netns = NetnsKey::new(NETNS, 7);
            story.listed(Fact::NetnsFound { netns, mounts: vec![pin.clone()], vacant: true });
        });
    };
    let mut story = Story::new();
    processes(story.at(1), false);
    read(story.at(5), if early { &['b'] } else { &[] }, socket);
    match made_at {
        Some(at) => drop(story.until(at).netns(DAEMON, NETNS, 7)),
        None => netns(story.at(10)),
    }
    netns(story.until(2 * MINUTE));
    for at in [3 * MINUTE, 5 * MINUTE] {
        read(story.until(at), &['b'], socket);
    }
    story.until(5 * MINUTE + 2500).moment();
    netns(story.until(5 * MINUTE + 3000));
    story.until(5 * MINUTE + 4000).moment();
    told(&story, "orphan_netns")
}

/// A sandbox of a completed Job from before the agent: no source shows its namespace.
#[test]
fn a_record_is_of_no_namespace_that_was_made_after_it() {
    assert_eq!(pinned(Some(1000), true, None), FOUND);
    assert_eq!(pinned(Some(1000), true, Some(&['b'])), FOUND);
}

#[test]
fn a_record_that_may_be_the_namespaces_leaves_it_unsure() {
    assert_eq!(pinned(Some(1000), false, None), [""; 0]);
    assert_eq!(pinned(None, true, None), [""; 0]);
}
