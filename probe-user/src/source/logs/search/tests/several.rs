//! Tests with two runtimes on one node.

use std::fs;

use super::{
    BUSYBOX, Node, asked,
    journal::{find_in, journal},
    span,
};
use crate::model::fact::{ImageWork, Pull};

const CREATE: &str = "msg=\"CreateContainer within sandbox \\\"aa\\\" for";
const MAIN: &str = "&ContainerMetadata{Name:main,Attempt:0,}";

/// containerd's container did not wait for CRI-O's pulls, not even of the same image.
#[test]
fn a_container_waits_only_for_its_own_runtime() {
    let id = "name=/runtime.v1.ImageService/PullImage";
    let node = Node::new(&[
        (11, &format!("msg=\"Pulling image: quay.io/a\" id=r1 {id}")),
        (12, "msg=\"PullImage \\\"quay.io/b\\\"\""),
        (14, "msg=\"PullImage \\\"quay.io/b\\\" returns image reference \\\"sha256:b\\\"\""),
        (14, "msg=\"PullImage \\\"busybox:1\\\"\""),
        (15, &format!("msg=\"Pulled image: quay.io/a@sha256:a\" id=r1 {id}")),
        (18, "msg=\"PullImage \\\"busybox:1\\\" returns image reference \\\"sha256:cd\\\"\""),
        (19, &format!("msg=\"Pulling image: busybox:1\" id=r2 {id}")),
        (20, &format!("msg=\"Pulled image: docker.io/library/busybox@sha256:cd\" id=r2 {id}")),
        (20, "msg=\"Creating container: default/web-9/main\" id=r3 name=/x"),
        (21, &format!("{CREATE} container {MAIN}\"")),
        (22, &format!("{CREATE} {MAIN} returns container id \\\"c1\\\"\"")),
    ]);
    let found = node.find([asked("c1", BUSYBOX, "main")]);
    let [work] = &found[..] else { panic!("{found:?}") };
    assert_eq!(work.pulls, [Pull { span: span(14, 18), failed: false, fetched: None }]);
    assert_eq!((&work.other_pulls[..], &work.other_creates[..]), (&[span(12, 14)][..], &[][..]));
}

/// Debian's containerd, for Docker, starts while k3s' own containerd pulls.
#[test]
fn a_containerd_of_the_node_and_that_of_k3s_are_two() {
    let node = Node::new(&[]);
    let began = "level=info msg=\"starting containerd\" version=1.6.20";
    let at = journal(&node, &[began]);
    let line = |after: u64, message: &str| {
        let at =
            jiff::Timestamp::from_microsecond(i64::try_from(at + after).expect("a time")).expect("a time");
        format!("time=\"{at}\" level=info {message}\n")
    };
    let pull = "msg=\"PullImage \\\"a/b\\\"";
    let log = [
        line(1_000_000, "msg=\"RemoveContainer for \\\"c0\\\"\""),
        line(2_000_000, &format!("{pull}\"")),
        line(4_000_000, &format!("{pull} returns image reference \\\"c\\\"\"")),
    ];
    fs::write(node.path("var/lib/rancher/k3s/agent/containerd/containerd.log"), log.concat()).expect("a log");
    let found = find_in(&node, &[began]);
    let [ImageWork { pulls, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(pulls[..], [Pull { span: span(22, 24), failed: false, fetched: None }]);
    // One starts while the other pulls.
    let log = [
        line(0, "msg=x"),
        line(0, &format!("{pull}\"")),
        line(4_000_000, &format!("{pull} returns image reference \\\"c\\\"\"")),
    ];
    fs::write(node.path("var/lib/rancher/k3s/agent/containerd/containerd.log"), log.concat()).expect("a log");
    assert_eq!(
        find_in(&node, &[began])[0].pulls,
        [Pull { span: span(20, 24), failed: false, fetched: None }]
    );
}
