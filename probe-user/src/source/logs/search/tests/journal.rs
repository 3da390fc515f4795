//! Tests with a node that has a journal.

use std::fs;

use super::{Node, asked, at, span};
use crate::{
    model::{
        fact::{ImageWork, Pull},
        time::Timestamp,
    },
    source::{
        host::HostRoot,
        logs::{
            plugin_log::{Sender, Window, each},
            search::{Search, find},
        },
    },
};

/// Writes a journal in which `messages` replace the first messages. Returns when the first was logged, µs
/// since 1970.
pub(super) fn journal(node: &Node, messages: &[&str]) -> u64 {
    let mut file = include_bytes!("../../../../../tests/data/journal/compact.journal").to_vec();
    for (place, message) in messages.iter().enumerate() {
        let old = format!(
            "time=\"2026-11-21T08:15:00.000000000Z\" level=info msg=\"RemoveContainer for \\\"{place}\\\" returns \
             successfully\""
        );
        let at = file.windows(old.len()).position(|it| it == old.as_bytes()).expect("a message");
        let new = format!("{message:<width$}", width = old.len());
        file[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    fs::write(node.path("var/log/journal/5d1cb95b000040008000000000000001/system.journal"), file)
        .expect("a journal");
    let mut first = None;
    let root = HostRoot::open(node.0.path()).expect("the root");
    each(&root, Window { from: 0, until: u64::MAX }, Sender::Daemon, &mut |at, text| {
        if text.trim_end() == messages[0] {
            first = Some(at);
        }
    });
    first.expect("the first message")
}

/// Searches a node whose boot time puts the journal's messages in the 20th second.
pub(super) fn find_in(node: &Node, messages: &[&str]) -> Vec<ImageWork> {
    let boot = journal(node, messages) - 20_000_000;
    let root = HostRoot::open(node.0.path()).expect("the root");
    let search = Search { containers: vec![asked("c1", "a/b", "main")], ..Search::default() };
    find(&root, &search, i64::try_from(boot).expect("a time") * 1000, Timestamp(1), Vec::new).images
}

#[test]
fn a_time_in_the_journal_that_cannot_be_is_not_taken() {
    let node = Node::new(&[]);
    let found = find_in(
        &node,
        &[
            "time=\"2020-01-01T00:00:00Z\" msg=\"PullImage \\\"a/b\\\"\"",
            "time=\"2020-01-01T00:00:09Z\" msg=\"PullImage \\\"a/b\\\" returns image reference \\\"c\\\"\"",
        ],
    );
    let [ImageWork { pulls, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(pulls.len(), 1);
    assert!(at(20) <= pulls[0].span.began && pulls[0].span.ended < at(21), "{pulls:?}");
}

#[test]
fn a_runtime_may_log_to_a_file_and_its_kubelet_to_the_journal() {
    let refused = "with ErrImagePull: \"pull QPS exceeded\" pod=\"default/web-0\"";
    let refused = format!("failed to \"StartContainer\" for \"main\" {refused}");
    let node = Node::new(&[]);
    let (began, ended) = (journal(&node, &[&refused]) + 1_000_000, 2_000_000);
    let line = |at: u64, message: &str| {
        let at = jiff::Timestamp::from_microsecond(i64::try_from(at).expect("a time")).expect("a time");
        format!("time=\"{at}\" level=info {message}\n")
    };
    let log = [
        line(began, "msg=\"PullImage \\\"a/b\\\"\""),
        line(began + ended, "msg=\"PullImage \\\"a/b\\\" returns image reference \\\"c\\\"\""),
    ];
    fs::write(node.path("var/lib/rancher/k3s/agent/containerd/containerd.log"), log.concat()).expect("a log");
    // syslog has the kubelet's lines again, and any user can write such lines there.
    let copy =
        line(began - 999_000, "").replace("time=", "").replace('"', "").replace("level=info", &refused);
    fs::write(node.path("var/log/syslog"), copy).expect("a log");
    let found = find_in(&node, &[&refused]);
    let [work] = &found[..] else { panic!("{found:?}") };
    assert_eq!(work.pulls, [Pull { span: span(21, 23), failed: false, fetched: None }]);
    assert_eq!(work.refused, [at(20)]);
}
