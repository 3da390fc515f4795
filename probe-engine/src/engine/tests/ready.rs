//! When a sandbox is ready.

use probe_common::event::class;

use super::{
    containerd::{PAUSE, TOP},
    story::{DAEMON, POD_NETNS, SHIM, Story, UID, Who, executed, id, leaf},
};
use crate::model::fact::Role;

const PATH: &str = "/proc/644/ns/net";

/// With a user namespace the OCI runtime makes the network namespace, and CNI is called while pause runs.
fn paused(story: &mut Story) {
    story.at(2).network("net", &["bridge", "portmap"]);
    story.at(5).kernel(executed(DAEMON, class::CALLER, "/usr/bin/containerd"));
    let line = format!("/usr/bin/containerd-shim-runc-v2 -id {} start", id('a'));
    story.at(10).exec(Who::new(SHIM, 564, "containerd-shim"), class::RUNTIME, &line);
    story.at(20).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.mkdir(21, &leaf('a'));
    story.netns(Who::new(644, 643, "runc:[1:CHILD]").within(21, POD_NETNS), POD_NETNS, 7);
    story.at(30).exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
}

fn ready(story: &Story) -> Vec<String> {
    story.run().into_iter().filter(|line| line.contains("sandbox.ready")).collect()
}

#[test]
fn a_user_namespaced_pod_is_ready_with_the_last_plugin_of_its_chain() {
    let mut story = Story::new();
    paused(&mut story);
    story.at(40).cni_done(585, "/usr/lib/cni/loopback", "ADD", PATH);
    story.at(50).cni_done(586, "/usr/lib/cni/bridge", "ADD", PATH);
    assert_eq!(ready(&story), Vec::<String>::new());
    story.at(60).cni_done(587, "/usr/lib/cni/portmap", "ADD", PATH);
    assert_eq!(ready(&story), ["61 sandbox.ready 51 ms [default/web-0 a]"]);
}

/// The configuration may have changed since it was read.
#[test]
fn a_container_at_work_shows_that_no_plugin_is_to_come() {
    let mut story = Story::new();
    paused(&mut story);
    story.at(50).cni_done(586, "/usr/lib/cni/bridge", "ADD", PATH);
    story.at(80).container('c', Role::Container, 'a', "main").mkdir(22, &leaf('c'));
    story.at(90).exec(Who::new(693, SHIM, "nginx").within(22, POD_NETNS), TOP, "/usr/sbin/nginx");
    assert_eq!(ready(&story), ["90 sandbox.ready 80 ms [default/web-0 a]"]);
}
