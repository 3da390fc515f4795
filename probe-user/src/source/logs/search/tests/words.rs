//! Tests with a kubelet that logs to a file of its own.

use std::fs;

use super::{BOOT_NS, Node, at};
use crate::{
    model::{
        fact::{DaemonWordsFound, Fact, Speaker, WordsFound},
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
        container: None,
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

/// The line that says what failed counts more than a later one that does not.
#[test]
fn a_container_that_does_not_come_up_says_why_in_its_own_log() {
    let node = Node::new(&[]);
    let folder = format!("var/log/pods/kube-system_calico-node-x2x7q_{UID}/install-cni");
    fs::create_dir_all(node.path(&folder)).expect("a folder");
    let log = [
        "2026-11-21T08:15:01Z stdout F 2026-11-21 08:15:01.988 [FATAL][1] x: Error before it waited",
        "2026-11-21T08:17:59Z stdout F time=\"2026-11-21T08:17:59Z\" level=info msg=\"Running as a Kubernetes pod\"",
        "2026-11-21T08:18:01Z stderr F time=\"2026-11-21T08:18:01Z\" level=error msg=\"Unauthorized\"",
        "2026-11-21T08:18:02Z stdout F \u{1b}[2Jbye",
    ];
    fs::write(node.path(&format!("{folder}/3.log")), log.join("\n") + "\n").expect("a log");
    let pod = AskedPod {
        uid: PodUid::parse(UID).expect("a UID"),
        namespace: Some("kube-system".to_owned()),
        name: Some("calico-node-x2x7q".to_owned()),
        sandboxes: Vec::new(),
        container: Some("install-cni".to_owned()),
    };
    // The kubelet says later, and each time anew, that it waits.
    let back_off = format!(
        "E1121 09:18:07.123456 1234 pod_workers.go:1301] \"Error syncing pod, skipping\" err=\"failed to \\\"StartContainer\\\" \
         for \\\"install-cni\\\" with CrashLoopBackOff: \\\"back-off 40s restarting failed container=install-cni\\\"\" \
         pod=\"kube-system/calico-node-x2x7q\" podUID=\"{UID}\"\n"
    );
    let kubelet = node.path("var/log/kubelet.log");
    fs::write(&kubelet, back_off).expect("a log");
    Node::dated(&kubelet, 187);
    let root = HostRoot::open(node.0.path()).expect("the root");
    let search = Search { pods: vec![(pod.clone(), at(60))], ..Search::default() };
    let found = find(&root, &search, BOOT_NS, at(200), Vec::new).words;
    let [Fact::WordsFound(WordsFound { said, .. })] = &found[..] else { panic!("{found:?}") };
    let said: Vec<_> = said.iter().map(|it| (it.by, it.text.as_str())).collect();
    let info = "time=\"2026-11-21T08:17:59Z\" level=info msg=\"Running as a Kubernetes pod\"";
    assert_eq!(
        said,
        [
            (Speaker::Plugin, "Unauthorized"),
            (Speaker::Plugin, "\\u{1b}[2Jbye"),
            (Speaker::Plugin, info),
            (Speaker::Kubelet, "back-off 40s restarting failed container=install-cni")
        ]
    );

    fs::remove_file(&kubelet).expect("a log");
    let pod = AskedPod { container: Some("calico-node".to_owned()), ..pod };
    let search = Search { pods: vec![(pod, at(60))], ..Search::default() };
    let found = find(&root, &search, BOOT_NS, at(200), Vec::new).words;
    let [Fact::WordsFound(WordsFound { unsaid: Some(unsaid), .. })] = &found[..] else { panic!("{found:?}") };
    assert!(unsaid.contains(&format!("kube-system_calico-node-x2x7q_{UID}/calico-node")), "{unsaid}");
}
