//! A node with damaged and hostile files. The test makes it, because FIFOs, devices and huge files do not go
//! into a repository.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use probe_user::{
    model::fact::{Fact, List},
    source::host::HostRoot,
};
use tempfile::TempDir;

use super::read;

/// Even a machine under full load needs a hundredth of this.
const LIMIT: Duration = Duration::from_secs(60);

const NETWORK: &str = "var/lib/cni/networks/podnet";
const RESULTS: &str = "var/lib/cni/results";
const TASKS: &str = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
const GOOD: &str = "default_web-0_11111111-2222-3333-4444-555555555555";

/// Returns a small healthy node.
fn node() -> TempDir {
    filled(tempfile::tempdir().expect("a directory"))
}

fn filled(root: TempDir) -> TempDir {
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    };
    write("proc/1/cgroup", "0::/init.scope\n");
    write("proc/1/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("proc/1/stat", "1 (systemd) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 3 9 10\n");
    write("proc/1/status", "NSpid:\t1\n");
    write("proc/1/cmdline", "/sbin/init\0");
    write("sys/fs/cgroup/init.scope/cgroup.events", "populated 1\n");
    write(&format!("var/log/pods/{GOOD}/main/0.log"), "");
    write(&format!("{NETWORK}/10.88.0.2"), "good\r\neth0");
    let cache = r#"{"kind":"cniCacheV1","containerId":"good","networkName":"podnet","ifName":"eth0"}"#;
    write(&format!("{RESULTS}/podnet-good-eth0"), cache);
    write(&format!("{TASKS}/good/config.json"), "{}");
    root
}

/// Returns the number of entries of an IPAM store or of a runtime's records at this path, and whether they
/// are complete. `None`: nothing is reported of the path.
fn reported(facts: &[Fact], path: &str) -> Option<(usize, bool)> {
    facts.iter().find_map(|fact| match fact {
        Fact::StoreRead(read) if read.store.path == path => Some((read.reservations.len(), read.complete)),
        Fact::RuntimeRead(read) if read.place == path => Some((read.sandboxes.len(), read.complete)),
        _ => None,
    })
}

fn networks(facts: &[Fact]) -> (Vec<&str>, bool) {
    fn of(fact: &Fact) -> Option<(Vec<&str>, bool)> {
        match fact {
            Fact::NetworksRead(read) => {
                Some((read.networks.iter().map(|it| &*it.name).collect(), read.complete))
            }
            _ => None,
        }
    }
    facts.iter().find_map(of).expect("the networks are reported")
}

/// Reads the node. A reader that waits for something fails the test instead of blocking it.
fn facts(root: &TempDir) -> (Vec<Fact>, u64) {
    let host = HostRoot::open(root.path()).expect("the root");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (_, facts, skipped) = read(&host);
        sender.send((facts, skipped.count)).ok();
    });
    receiver.recv_timeout(LIMIT).expect("nothing waits and nothing panics")
}

fn complete(facts: &[Fact], which: List) -> bool {
    let ended = |fact: &Fact| match fact {
        Fact::ListEnded { list, complete } if *list == which => Some(*complete),
        _ => None,
    };
    facts.iter().find_map(ended).expect("the list ended")
}

/// Returns the counts of pods, containers, CNI cache entries and reservations.
fn found(facts: &[Fact]) -> (usize, usize, usize, usize) {
    let count = |of: fn(&Fact) -> bool| facts.iter().filter(|fact| of(fact)).count();
    (
        count(|fact| matches!(fact, Fact::PodFound { .. })),
        count(|fact| matches!(fact, Fact::ContainerFound(_))),
        count(|fact| matches!(fact, Fact::CacheFound(_))),
        facts.iter().map(reservations).sum(),
    )
}

/// Returns the number of reservations with a holder in a store.
fn reservations(fact: &Fact) -> usize {
    match fact {
        Fact::StoreRead(read) => read.reservations.iter().filter(|it| it.holder.is_some()).count(),
        _ => 0,
    }
}

#[test]
fn a_healthy_node_is_complete() {
    let (facts, skipped) = facts(&node());
    assert_eq!((found(&facts), skipped), ((1, 1, 1, 1), 0));
    for list in [
        List::Pods,
        List::Containers,
        List::Cgroups,
        List::CniCache,
        List::Ipam,
        List::Runtimes,
        List::Processes,
    ] {
        assert!(complete(&facts, list), "{list:?}");
    }
    assert_eq!(reported(&facts, "/var/lib/cni/networks/podnet"), Some((1, true)));
    assert_eq!(reported(&facts, "/var/lib/own-ipam"), Some((0, true)));
    assert_eq!(networks(&facts), (Vec::new(), true));
}

/// Each of them is reported as incomplete, so that the agent can name it as a blind spot.
#[test]
fn an_unreadable_store_is_not_an_empty_one() {
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("10.88.0.9"), "stolen\r\neth0").expect("a file");
    let root = node();
    let at = |path: &str| root.path().join(path);
    let make = |path: &str| fs::create_dir_all(at(path)).expect("directories");
    make("etc/cni/net.d");
    make("run/aws-node");
    make("var/lib/containerd/io.containerd.grpc.v1.cri");
    make("var/lib/containers/storage/overlay-containers");
    make("var/lib/docker/containers/0badc0de");
    symlink(outside.path(), at("var/lib/cni/networks/linked")).expect("a link");
    fs::write(at("var/lib/own-ipam"), "a file").expect("a file");
    symlink(outside.path().join("10.88.0.9"), at("run/aws-node/ipam.json")).expect("a link");
    symlink(outside.path(), at("var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes")).expect("a link");
    let storage = at("var/lib/containers/storage/overlay-containers/containers.json");
    mkfifo(&storage, Mode::S_IRWXU).expect("a fifo");
    fs::write(at("var/lib/docker/containers/0badc0de/config.v2.json"), b"\xff").expect("a file");
    fs::write(at("etc/cni/net.d/10-good.conf"), r#"{"name":"good","type":"ptp"}"#).expect("a file");
    symlink("10-good.conf", at("etc/cni/net.d/20-linked.conf")).expect("a link");
    fs::write(at("etc/cni/net.d/30-bad.conflist"), "[".repeat(1 << 14)).expect("a file");
    let huge = File::create(at("etc/cni/net.d/40-huge.json")).and_then(|file| file.set_len(64 << 30));
    huge.expect("a sparse file");

    let (facts, skipped) = facts(&root);
    for place in [
        "/var/lib/cni/networks/linked",
        "/var/lib/own-ipam",
        "/run/aws-node/ipam.json",
        "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes",
        "/var/lib/containers/storage/overlay-containers/containers.json",
    ] {
        assert_eq!(reported(&facts, place), Some((0, false)), "{place}");
    }
    // Docker's unreadable record is unknown, and its others count.
    assert_eq!(reported(&facts, "/var/lib/docker/containers"), Some((1, true)));
    assert_eq!(networks(&facts), (vec!["good"], false));
    assert!(!complete(&facts, List::Ipam) && !complete(&facts, List::Runtimes));
    assert_eq!(skipped, 6 + 3);
    assert_eq!(reported(&facts, "/var/lib/cni/networks/podnet"), Some((1, true)));
    assert!(!facts.iter().any(|fact| format!("{fact:?}").contains("stolen")));
}

#[test]
fn a_declared_store_with_bad_files_is_read_as_far_as_possible() {
    let root = node();
    let at = |path: &str| root.path().join("var/lib/own-ipam").join(path);
    fs::create_dir(at("")).expect("a directory");
    fs::write(at("10.0.0.1"), "good net1\n").expect("a file");
    fs::write(at("10.0.0.2"), "").expect("a file");
    fs::write(at("10.0.0.3"), "c".repeat(5000)).expect("a file");
    fs::write(at("10.0.0.4"), b"\xff\xfe\0").expect("a file");
    fs::write(at("not an address"), "good").expect("a file");
    fs::write(at(".10.0.0.6.tmp"), "good").expect("a file");
    mkfifo(&at("10.0.0.7"), Mode::S_IRWXU).expect("a fifo");
    symlink("10.0.0.1", at("10.0.0.8")).expect("a link");
    fs::create_dir(at("10.0.0.9")).expect("a directory");

    let (facts, skipped) = facts(&root);
    // The reservations count although their holders are unknown.
    assert_eq!(reported(&facts, "/var/lib/own-ipam"), Some((7, true)));
    assert_eq!((found(&facts).3, skipped), (2, 7));
}

/// No plugin and no runtime makes such names, so nothing is missing from the lists.
#[test]
fn names_that_are_not_utf8_leave_the_lists_complete() {
    let root = node();
    let odd = |folder: &str| root.path().join(folder).join(OsStr::from_bytes(b"\xff\xfe"));
    let sandboxes = "var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";
    fs::create_dir_all(root.path().join(sandboxes)).expect("directories");
    fs::create_dir_all(root.path().join("etc/cni/net.d")).expect("directories");
    for folder in [NETWORK, RESULTS, "var/lib/cni/networks", sandboxes, "etc/cni/net.d"] {
        fs::write(odd(folder), "").expect("a file");
    }
    let (facts, skipped) = facts(&root);
    assert!(complete(&facts, List::Ipam) && complete(&facts, List::CniCache));
    assert!(complete(&facts, List::Runtimes));
    assert_eq!(reported(&facts, "/var/lib/cni/networks/podnet"), Some((1, true)));
    assert_eq!(reported(&facts, &format!("/{sandboxes}")), Some((0, true)));
    assert_eq!(networks(&facts), (Vec::new(), true));
    assert_eq!(skipped, 3);
}

/// A power cut can leave a file with a name and without its content.
#[test]
fn a_torn_file_counts_by_its_name_and_the_list_is_complete() {
    let root = node();
    let at = |path: &str| root.path().join(path);
    fs::write(at(&format!("{RESULTS}/podnet-empty-eth0")), "").expect("a file");
    fs::write(at(&format!("{RESULTS}/podnet-half-eth0")), r#"{"kind":"cniCacheV1","contai"#).expect("a file");
    fs::write(at(&format!("{RESULTS}/notes~")), "not libcni's").expect("a file");
    fs::write(at(&format!("{NETWORK}/10.88.0.3")), "").expect("a file");
    fs::write(at(&format!("{NETWORK}/notes")), "not host-local's").expect("a file");

    let (facts, skipped) = facts(&root);
    let unread: Vec<_> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::CacheUnread { path } => path.strip_prefix("/var/lib/cni/results/"),
            _ => None,
        })
        .collect();
    assert_eq!(unread, ["podnet-empty-eth0", "podnet-half-eth0"]);
    assert_eq!((found(&facts), skipped), ((1, 1, 1, 1), 5));
    assert!(complete(&facts, List::CniCache) && complete(&facts, List::Ipam));
    // The holder of this address is unknown. The address is allocated.
    assert_eq!(reported(&facts, "/var/lib/cni/networks/podnet"), Some((2, true)));
}

#[test]
fn files_that_change_while_they_are_read_do_no_harm() {
    let root = node();
    let at = |path: &str| root.path().join(path);
    fs::create_dir_all(at("run/aws-node")).expect("a directory");
    let (checkpoint, lease) = (at("run/aws-node/ipam.json"), at(&format!("{NETWORK}/10.88.0.3")));
    let (stop, stopped) = mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        let text = r#"{"version":"vpc-cni-ipam/1","allocations":[{"containerID":"c1","ipv4":"10.1.0.1"}]}"#;
        let mut n = 0_usize;
        while stopped.try_recv().is_err() {
            n += 1;
            fs::write(&checkpoint, &text[..n % (text.len() + 1)]).expect("a file");
            fs::write(&lease, "c1\r\neth0").expect("a file");
            fs::remove_file(&lease).expect("removed");
        }
    });
    for _ in 0..20 {
        let (facts, _) = facts(&root);
        let good = facts.iter().any(|fact| reservations(fact) > 0);
        assert!(good, "the unchanged reservation is always found");
        let path =
            if reported(&facts, "/var/run/aws-node/ipam.json").is_some() { "/var/run" } else { "/run" };
        let checkpoint = reported(&facts, &format!("{path}/aws-node/ipam.json"));
        assert!(matches!(checkpoint, None | Some((0, false) | (1, true))), "{checkpoint:?}");
    }
    stop.send(()).expect("it still writes");
    writer.join().expect("no panic");
}

#[test]
fn other_than_plain_files_are_skipped_and_counted() {
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("secret"), "stolen\r\neth0").expect("a file");
    let root = node();
    let at = |path: &str| root.path().join(path);
    mkfifo(&at(&format!("{NETWORK}/10.88.0.3")), Mode::S_IRWXU).expect("a fifo");
    symlink(outside.path().join("secret"), at(&format!("{NETWORK}/10.88.0.4"))).expect("a link");
    symlink("10.88.0.2", at(&format!("{NETWORK}/10.88.0.5"))).expect("a link");
    symlink("10.88.0.6", at(&format!("{NETWORK}/10.88.0.6"))).expect("a link to itself");
    fs::create_dir(at(&format!("{NETWORK}/10.88.0.7"))).expect("a directory");
    symlink(outside.path(), at("var/lib/cni/networks/outside")).expect("a link");
    mkfifo(&at(&format!("{RESULTS}/podnet-fifo-eth0")), Mode::S_IRWXU).expect("a fifo");
    fs::create_dir(at(&format!("{TASKS}/fifo"))).expect("a directory");
    mkfifo(&at(&format!("{TASKS}/fifo/config.json")), Mode::S_IRWXU).expect("a fifo");
    symlink(outside.path(), at(&format!("{TASKS}/link"))).expect("a link");

    let (facts, skipped) = facts(&root);
    assert_eq!((found(&facts), skipped), ((1, 1, 1, 1), 5 + 1 + 1 + 2));
    for (list, whole) in
        [(List::Ipam, false), (List::CniCache, true), (List::Containers, false), (List::Pods, true)]
    {
        assert_eq!(complete(&facts, list), whole, "{list:?}");
    }
    assert!(!facts.iter().any(|fact| format!("{fact:?}").contains("stolen")));
}

#[test]
fn huge_and_binary_files_are_skipped_and_counted() {
    let root = node();
    let at = |path: &str| root.path().join(path);
    let huge =
        |path: &str| File::create(at(path)).and_then(|file| file.set_len(64 << 30)).expect("a sparse file");
    huge(&format!("{NETWORK}/10.88.0.3"));
    huge(&format!("{RESULTS}/podnet-huge-eth0"));
    fs::create_dir(at(&format!("{TASKS}/huge"))).expect("a directory");
    huge(&format!("{TASKS}/huge/config.json"));
    fs::write(at(&format!("{NETWORK}/10.88.0.4")), b"\xff\xfe\0\0").expect("a file");
    fs::write(at(&format!("{NETWORK}/10.88.0.8888")), "good\r\neth0").expect("a file");
    fs::write(at(&format!("{RESULTS}/podnet-deep-eth0")), "[".repeat(1 << 20)).expect("a file");
    let bad = OsStr::from_bytes(b"podnet-\xff-eth0");
    fs::write(at(RESULTS).join(bad), "{}").expect("a file");
    fs::create_dir(at("var/log/pods/no pod's name")).expect("a directory");
    for i in 0..3000 {
        fs::write(at(&format!("{NETWORK}/10.89.{}.{}", i / 250, i % 250)), format!("c{i}\r\neth0"))
            .expect("a file");
    }

    let (facts, skipped) = facts(&root);
    assert_eq!((found(&facts), skipped), ((1, 1, 1, 3001), 1 + 1 + 1 + 2 + 1 + 1 + 1));
}

#[test]
fn strange_processes_and_deep_cgroups_are_skipped_and_counted() {
    let root = node();
    let at = |path: &str| root.path().join(path);
    for (pid, stat) in [("7", "7 (x"), ("8", ""), ("9", "9 (a) S 1 - - - - - -")] {
        fs::create_dir_all(at(&format!("proc/{pid}"))).expect("a directory");
        fs::write(at(&format!("proc/{pid}/stat")), stat).expect("a file");
    }
    fs::create_dir(at("proc/10")).expect("a process that has just gone");
    symlink("1", at("proc/11")).expect("a link");
    let mut deep = at("sys/fs/cgroup/deep");
    for _ in 0..100 {
        deep.push("d");
    }
    fs::create_dir_all(deep).expect("directories");

    let (facts, skipped) = facts(&root);
    assert_eq!(skipped, 3 + 1 + 1);
    assert!(!complete(&facts, List::Processes) && !complete(&facts, List::Cgroups));
    let deepest = facts.iter().filter(|fact| matches!(fact, Fact::CgroupFound { .. })).count();
    assert_eq!(deepest, 1 + 32);
}

/// A container with its own cgroup namespace sees the node's processes with such paths.
#[test]
fn a_cgroup_path_relative_to_a_namespace_is_resolved() {
    let root = node();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    };
    let cgroup = format!("/kubepods/pod1/{}", "0123456789abcdef".repeat(4));
    write("proc/7/stat", "7 (pause) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 300 9 10\n");
    write("proc/7/cgroup", &format!("0::/../../..{cgroup}\n"));
    write("proc/7/status", "NSpid:\t7\t1\n");
    write("proc/7/cmdline", "/pause\0");
    write(&format!("sys/fs/cgroup{cgroup}/cgroup.procs"), "7\n");
    let (facts, _) = facts(&root);
    let found = facts.iter().find_map(|fact| match fact {
        Fact::ProcessFound(found) if found.task.key.pid == 7 => {
            Some((&*found.cgroup_path, found.task.cgroup.id))
        }
        _ => None,
    });
    let (path, id) = found.expect("the process is found");
    assert_eq!(path, cgroup);
    assert_ne!(id, 0);
}

#[test]
fn an_empty_node_is_incomplete_where_it_must_have_something() {
    let root = node();
    for gone in ["var", "run", "sys"] {
        fs::remove_dir_all(root.path().join(gone)).expect("removed");
    }
    let (facts, _) = facts(&root);
    assert_eq!(found(&facts), (0, 0, 0, 0));
    for (list, whole) in
        [(List::Pods, true), (List::Ipam, true), (List::Cgroups, false), (List::Processes, true)]
    {
        assert_eq!(complete(&facts, list), whole, "{list:?}");
    }
    assert!(HostRoot::open(&root.path().join("gone")).is_err());
    assert!(Path::new("/proc/self").exists(), "the test needs /proc");
}

/// A node has as many records after a year of leaks.
#[test]
fn ten_thousand_records_are_read_quickly() {
    // The files are in memory if possible, so that the test measures only the reading.
    let root =
        filled(tempfile::tempdir_in("/dev/shm").or_else(|_none| tempfile::tempdir()).expect("a directory"));
    let at = |path: &str| root.path().join(path);
    let sandboxes = at("var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes");
    for i in 0..10_000_u32 {
        let id = format!("{i:064x}");
        fs::create_dir_all(sandboxes.join(&id)).expect("directories");
        let address = std::net::Ipv4Addr::from(0x0a59_0000 + i);
        fs::write(at(&format!("{NETWORK}/{address}")), format!("{id}\r\neth0")).expect("a file");
    }
    let start = Instant::now();
    let (facts, skipped) = facts(&root);
    let took = start.elapsed();
    assert_eq!((found(&facts).3, skipped), (10_001, 0));
    let place = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";
    assert_eq!(reported(&facts, place), Some((10_000, true)));
    // The bound is for an unoptimized build beside other work: 40 times what it takes alone.
    assert!(took < Duration::from_secs(8), "{took:?}");
}
