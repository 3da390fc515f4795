//! Tests with a kubelet that logs to a file of its own.

use std::fs;

use super::{BOOT_NS, Node, at};
use crate::{
    model::{
        fact::{DaemonWordsFound, Fact, WordsFound},
        id::PodUid,
    },
    source::{
        host::HostRoot,
        logs::search::{AskedPod, Search, find},
    },
};

const UID: &str = "00000000-0142-4000-8000-000000000001";

/// klog writes times without a year, in the node's time zone. This one is an hour ahead of UTC.
#[test]
fn words_are_found_in_a_file_that_klog_writes() {
    let node = Node::new(&[]);
    let line = |minute: u64, text: &str| {
        format!(
            "E1121 09:{minute:02}:07.123456 1234 pod_workers.go:1301] \"Error syncing pod, skipping\" err=\"{text}\" \
             pod=\"default/web-0\" podUID=\"{UID}\"\n"
        )
    };
    let log = node.path("var/log/kubelet.log");
    fs::write(&log, line(15, "before it waited") + &line(18, "what it waits for")).expect("a log");
    Node::dated(&log, 187);
    let pod = AskedPod {
        uid: PodUid::parse(UID).expect("a UID"),
        namespace: None,
        name: None,
        sandboxes: Vec::new(),
    };
    let search = Search { pods: vec![(pod, at(60))], ..Search::default() };
    let root = HostRoot::open(node.0.path()).expect("the root");
    let found = find(&root, &search, BOOT_NS, at(200), Vec::new).words;
    let [Fact::PodFound { name, .. }, Fact::WordsFound(WordsFound { said, unsaid, .. })] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((name.as_str(), unsaid), ("web-0", &None));
    let [said] = &said[..] else { panic!("{said:?}") };
    assert_eq!((said.text.as_str(), said.at.as_str()), ("what it waits for", "2026-11-21T08:18:07Z"));
    assert_eq!(said.source, "/var/log/kubelet.log");
}

/// A panic has no time of its own, and neither has the line with which containerd refuses its configuration.
#[test]
fn last_words_without_a_time_are_found_in_files() {
    let node = Node::new(&[]);
    let (kubelet, containerd) = (node.path("var/log/kubelet.log"), node.path("var/log/containerd.log"));
    let panic = "panic: could not restore state from checkpoint";
    let before = "I1121 09:18:07.123456 1234 server.go:1] \"Starting\"\n";
    fs::write(&kubelet, format!("{before}{panic}\n\ngoroutine 1 [running]:\n")).expect("a log");
    let refused = "containerd: failed to load TOML: x: expected newline";
    fs::write(&containerd, format!("{refused}\n")).expect("a log");
    let root = HostRoot::open(node.0.path()).expect("the root");
    for (daemon, modified, expected) in [
        ("kubelet", 187, Some((panic, "2026-11-21T08:18:07Z"))),
        ("containerd", 190, Some((refused, "2026-11-21T08:18:10Z"))),
        ("containerd", 50, None),
    ] {
        Node::dated(&kubelet, 187);
        Node::dated(&containerd, modified);
        // The other file has such a line too.
        let (hidden, other) =
            if daemon == "kubelet" { (&containerd, "containerd") } else { (&kubelet, "kubelet") };
        let aside = node.path(other);
        fs::rename(hidden, &aside).expect("a file");
        let search = Search { daemons: vec![(daemon.to_owned(), at(60))], ..Search::default() };
        let found = find(&root, &search, BOOT_NS, at(200), Vec::new).words;
        fs::rename(&aside, hidden).expect("a file");
        let [Fact::DaemonWordsFound(DaemonWordsFound { said, .. })] = &found[..] else { panic!("{found:?}") };
        let said = said.first().map(|said| (said.text.as_str(), said.at.as_str()));
        assert_eq!(said, expected, "{daemon} {modified}");
    }
}
