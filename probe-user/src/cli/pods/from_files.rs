//! Lists pods from the node's files.

use std::{fs, time::Duration};

use anyhow::anyhow;

use super::{Ages, Pods, Seen, Sort};
pub(super) use crate::cli::on_node::node::args::NodeArgs;
use crate::{
    cli::{
        ExitStatus,
        on_node::node::{
            args::warn_of_absent,
            place::Place,
            scan::{is_whole, scan},
        },
        say,
        snapshot::{NothingKept, Nowhere},
    },
    engine::{Engine, Settings, view::PodView},
    model::{phase::Start, time::Timestamp},
    source::{
        backfill::{Node, kubelet},
        host::HostRoot,
        node::clock,
    },
};

/// Lists the pods from the files, with the starts that an agent has seen.
pub(super) fn list(args: &Pods) -> anyhow::Result<Seen> {
    let Seen { mut pods, mut ages, now, mut done, .. } = read_files(&args.node)?;
    // Only an agent knows starts. Without one the pods are listed anyway.
    let wanted = args.slow || args.sort == Sort::Start || args.pictures.are_wanted();
    let mut seen = None;
    match args.from.read() {
        Ok(snapshot) if snapshot.label.boot_id == boot_id() => {
            snapshot.caveats.iter().for_each(|caveat| say(caveat));
            give(&mut pods, &snapshot.starts);
            older(&mut ages, &snapshot.starts, now);
            seen = Some(snapshot);
        }
        Ok(_) if wanted => return Err(anyhow!("no start was seen in this boot: start sandprobe run")),
        Err(error) if wanted => return Err(error),
        // Then the list has no starts.
        Ok(_) => {}
        Err(error) => {
            let nothing = error.downcast_ref::<NothingKept>();
            // Where no agent has run, nothing needs to be said unless one was named.
            if nothing.is_none_or(|it| it.nobody.is_some()) {
                say(&format!("{error:#}"));
            }
            // Nothing is missing if no agent has run, or if none is asked.
            if nothing.is_none() && !error.is::<Nowhere>() {
                done = ExitStatus::Incomplete;
            }
        }
    }
    Ok(Seen { pods, ages, snapshot: seen, now, done })
}

fn read_files(args: &NodeArgs) -> anyhow::Result<Seen> {
    let (_, stores) = args.config.load()?;
    let place = Place::find(HostRoot::open(&args.host.host_root)?)?;
    warn_of_absent(&stores, &place.root);
    let mut engine = Engine::new(Settings::default());
    let node = Node {
        root: &place.root,
        hierarchy: &place.hierarchy,
        clock: &clock::now,
        boot_wall_ns: clock::boot_wall_ns(),
        stores: &stores,
    };
    let is_whole = is_whole(&scan(&mut engine, node), "the list may be incomplete");
    let done = if is_whole { ExitStatus::Ok } else { ExitStatus::Incomplete };
    let pods = engine.pods();
    let now = clock::now();
    let ages = ages(&place.root, &pods, clock::boot_wall_ns().saturating_add_unsigned(now.0));
    Ok(Seen { pods, ages, snapshot: None, now, done })
}

/// Returns how long ago the kubelet first handled each pod, if it keeps a folder of the pod with that date.
fn ages(root: &HostRoot, pods: &[PodView], wall_ns: i64) -> Ages {
    let kubelets = kubelet::Roots::find(root);
    let mut ages = Ages::new();
    for uid in pods.iter().filter_map(|pod| pod.uid.as_ref()) {
        if let Some(born) = kubelets.born(root, uid) {
            let age = wall_ns.saturating_sub(born).max(0).unsigned_abs();
            ages.insert(uid.clone(), Duration::from_nanos(age));
        }
    }
    ages
}

/// Returns the kernel's boot id, which does not depend on namespaces.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Adds to each pod its latest start, by the pod's UID.
fn give(pods: &mut [PodView], starts: &[Start]) {
    for pod in pods {
        let of_pod = starts.iter().filter(|start| pod.uid.is_some() && start.pod.uid == pod.uid);
        pod.start = of_pod.max_by_key(|start| start.begin).cloned();
    }
}

/// Adds the ages of pods that the files do not show, by the first start that was seen of each.
fn older(ages: &mut Ages, starts: &[Start], now: Timestamp) {
    let mut seen = Ages::new();
    for start in starts.iter().filter(|start| !start.listed) {
        let Some(uid) = &start.pod.uid else { continue };
        let age = seen.entry(uid.clone()).or_default();
        *age = now.since(start.begin).max(*age);
    }
    for (uid, age) in seen {
        ages.entry(uid).or_insert(age);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, process::Command, thread};

    use clap::Parser;

    use super::{ExitStatus, Pods, list};

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        pods: Pods,
    }

    /// After a power loss libcni's last files are empty. Other files have the same content.
    #[test]
    fn a_list_is_whole_beside_a_torn_cache_and_not_without_a_folder() {
        let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/hosts/containerd-systemd");
        let root = tempfile::tempdir().expect("a folder");
        let copied = Command::new("cp").args(["-a", &format!("{host}/.")]).arg(root.path()).status();
        assert!(copied.expect("cp").success());
        let typed = ["pods", "--socket", "none", "--state-dir", "none", "--host-root"];
        let root_name = root.path().to_str().expect("a name");
        let Typed { pods } = Typed::parse_from([&typed[..], &[root_name]].concat());
        let cache = root.path().join("var/lib/cni/results");
        fs::create_dir_all(&cache).expect("a folder");
        let done = || list(&pods).expect("a list").done;
        fs::write(cache.join(format!("podnet-{}-eth0", "0123".repeat(16))), "").expect("a file");
        assert_eq!(done(), ExitStatus::Ok);
        fs::remove_dir_all(&cache).expect("a folder");
        fs::write(&cache, "").expect("a file");
        assert_eq!(done(), ExitStatus::Incomplete);
    }

    /// A node without an agent is listed whole; one whose agent knows starts that cannot be read is not.
    #[test]
    fn starts_that_cannot_be_read_are_missing() {
        let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/hosts/containerd-systemd");
        let dir = tempfile::tempdir().expect("a folder");
        let done_with = |socket: &str, state: &str| {
            let Typed { pods } =
                Typed::parse_from(["pods", "--host-root", host, "--socket", socket, "--state-dir", state]);
            let seen = list(&pods).expect("a list");
            assert!(!seen.pods.is_empty(), "the rows are shown all the same");
            seen.done
        };
        let done = |state: &str| done_with("none", state);
        let kept = dir.path().to_str().expect("a name");
        assert_eq!((done(kept), done("none")), (ExitStatus::Ok, ExitStatus::Ok));
        // As in the agent's pod, which names its socket.
        let socket = dir.path().join("agent.sock");
        let socket = socket.to_str().expect("a name");
        assert_eq!(done_with(socket, kept), ExitStatus::Ok, "no agent has run");
        let listener = UnixListener::bind(socket).expect("a socket");
        let agent = thread::spawn(move || drop(listener.accept()));
        assert_eq!(done_with(socket, kept), ExitStatus::Incomplete, "an agent listens, and does not answer");
        agent.join().expect("it was asked");
        for what in ["nonsense", r#"{"schema":99}"#] {
            fs::write(dir.path().join("findings.json"), what).expect("a file");
            assert_eq!(done(kept), ExitStatus::Incomplete, "{what}");
        }
    }
}
