//! Tests with a node whose kubelet logged that it held requests back.

use std::{collections::BTreeSet, fs};

use super::{BOOT_NS, Node, at, journal::journal, span};
use crate::{
    model::{
        fact::{Fact, HeldRequests},
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        files::answer::{About, Answerer, LogSearch},
        host::HostRoot,
        logs::search::{AskedSandbox, Search, find},
    },
};

const SANDBOX: &str = "9ffacbee";
const UID: &str = "11111111-2222-3333-4444-555555555555";

/// Finds the held requests of a sandbox that came 10 s to 40 s after the boot.
fn held(node: &Node, boot_ns: i64) -> Vec<HeldRequests> {
    let sandbox = ContainerId::parse(SANDBOX).expect("an id");
    let it = AskedSandbox { sandbox, namespace: Some("shop".to_owned()), from: at(10), until: at(40) };
    let root = HostRoot::open(node.0.path()).expect("the root");
    let search = Search { sandboxes: vec![it], ..Search::default() };
    find(&root, &search, boot_ns, Timestamp(1), Vec::new).held
}

/// Makes the kubelet the sender of the journal's messages from containerd.
fn are_kubelets(node: &Node) {
    const HEAD: usize = 72;
    let path = node.path("var/log/journal/5d1cb95b000040008000000000000001/system.journal");
    let mut file = fs::read(&path).expect("the journal");
    let (old, new) = (b"_COMM=containerd", b"_COMM=kubelet");
    let field = file.windows(old.len()).position(|it| it == old).expect("the field");
    file[field..field + new.len()].copy_from_slice(new);
    let size = u64::try_from(HEAD + new.len()).expect("a size");
    file[field - HEAD + 8..field - HEAD + 16].copy_from_slice(&size.to_le_bytes());
    fs::write(path, file).expect("a journal");
}

#[test]
fn only_the_kubelets_own_words_in_the_journal_count() {
    let node = Node::new(&[]);
    let token = "Throttling request took 5s, request: GET:https://a/api/v1/namespaces/shop/secrets/c";
    let first = journal(&node, &[token]);
    // The message is from the 20th second.
    let boot_ns = i64::try_from(first - 20_000_000).expect("a time") * 1000;
    assert_eq!(held(&node, boot_ns), [], "some other program said so");
    are_kubelets(&node);
    let found = held(&node, boot_ns);
    let [HeldRequests { held, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(held[..], [span(15, 20)]);
    // The search begins before the time in which the sandbox came.
    assert_eq!(self::held(&node, boot_ns + 15_000_000_000), []);
}

fn throttled(delay: &str, object: &str) -> String {
    format!("Throttling request took {delay}, request: GET:https://a/api/v1/namespaces/{object}")
}

/// Writes the journal of a kubelet with these messages. Returns the time at boot that puts them in the 20th
/// second.
fn said_by_kubelet(node: &Node, messages: &[&str]) -> i64 {
    let first = journal(node, messages);
    are_kubelets(node);
    i64::try_from(first - 20_000_000).expect("a time") * 1000
}

#[test]
fn a_pod_waits_for_its_own_requests_and_for_those_that_were_there_before_it() {
    let node = Node::new(&[]);
    let lines = [
        throttled("12s", "other/secrets/a"),
        throttled("5s", "shop/secrets/a"),
        throttled("2s", "other/secrets/a"),
    ];
    let boot_ns = said_by_kubelet(&node, &lines.each_ref().map(String::as_str));
    let found = held(&node, boot_ns);
    let [HeldRequests { sandbox, held }] = &found[..] else { panic!("{found:?}") };
    let seconds = |at: Timestamp| at.0 / 1_000_000_000;
    // journald received all of them at the same time.
    let held: BTreeSet<_> = held.iter().map(|it| (seconds(it.began), seconds(it.ended))).collect();
    assert_eq!((sandbox.as_str(), held), (SANDBOX, BTreeSet::from([(8, 20), (15, 20)])));
}

/// Any user can write to syslog under any program's name.
#[test]
fn what_syslog_says_of_a_kubelet_holds_nothing_up() {
    let node = Node::new(&[]);
    let line = "2026-11-21T08:15:20Z node-1 kubelet[1187]: I1121 08:15:20.906412    1187 request.go:752] \
        \"Waited before sending request\" delay=\"5s\" reason=\"client-side throttling, not priority and fairness\" \
        verb=\"POST\" URL=\"https://10.0.0.1:6443/api/v1/namespaces/shop/serviceaccounts/default/token\"\n";
    for log in ["syslog", "messages"] {
        fs::write(node.path(&format!("var/log/{log}")), line).expect("a log");
    }
    assert_eq!(held(&node, BOOT_NS), []);
}

#[test]
fn a_pod_that_needs_nothing_of_the_api_server_did_not_wait_for_it() {
    let node = Node::new(&[]);
    let boot_ns = said_by_kubelet(&node, &[&throttled("5s", "shop/secrets/a")]);
    let bundle = format!(
        "{{\"annotations\":{{\"io.kubernetes.cri.container-type\":\"sandbox\",\"io.kubernetes.cri.sandbox-id\":\
         \"{SANDBOX}\",\"io.kubernetes.cri.sandbox-name\":\"web-0\",\"io.kubernetes.cri.sandbox-namespace\":\"shop\",\
         \"io.kubernetes.cri.sandbox-uid\":\"{UID}\"}}}}"
    );
    let path =
        node.path(&format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{SANDBOX}/config.json"));
    fs::write(path, bundle).expect("a bundle");
    let sandbox = ContainerId::parse(SANDBOX).expect("an id");
    let answer = || {
        let root = HostRoot::open(node.0.path()).expect("the root");
        let mut answerer = Answerer::new(&root);
        answerer.container(&sandbox);
        let slow = LogSearch { about: About::Sandbox(sandbox.clone()), time: at(10)..at(40) };
        answerer.search_logs(vec![slow], boot_ns, Timestamp(1))
    };
    let volume = |plugin: &str| {
        let path = node.path(&format!("var/lib/kubelet/pods/{UID}/volumes/{plugin}/data"));
        fs::create_dir_all(path).expect("a folder");
    };
    volume("kubernetes.io~empty-dir");
    assert_eq!(answer(), []);
    volume("kubernetes.io~projected");
    let expected = HeldRequests { sandbox: sandbox.clone(), held: vec![span(15, 20)] };
    assert_eq!(answer(), [Fact::HeldRequests(expected)]);
}
