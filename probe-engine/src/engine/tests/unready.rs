//! A node whose runtime can make no network: what confirms that, and what speaks against it.

use super::story::{DAEMON, KUBELET, Story, ms, run::check_lines};
use crate::model::fact::{
    Fact, List, NetworkFault, NetworkFaultForm, NetworkLoading, NetworksRead, NodeFolders, Origin,
    RuntimeKind,
};

const SECOND: u64 = 1000;
const KEY: &str = "node_network_unready/node";

/// A node that runs.
fn node() -> Story {
    let mut story = Story::new();
    story.list(List::Processes, true, |story| {
        story.found(KUBELET, KUBELET.pid, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        story.found(DAEMON, DAEMON.pid, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    story
}

/// A fault, or none.
fn reads(story: &mut Story, at: u64, how: Option<NetworkFaultForm>) {
    let fault = how.map(|how| NetworkFault { how, file: None, error: None, plugin: None });
    let folder = "/etc/cni/net.d".to_owned();
    reads_as(story, at, Some(NetworkLoading { runtime: RuntimeKind::Containerd, folder, fault }));
}

/// `None`: the files cannot be read.
fn reads_as(story: &mut Story, at: u64, loading: Option<NetworkLoading>) {
    story.at(at).listed(Fact::NetworksRead(NetworksRead {
        networks: Vec::new(),
        complete: loading.is_some(),
        undecodable: Vec::new(),
        written: None,
        folders: NodeFolders::default(),
        loading,
    }));
}

fn told(story: &Story, until: u64) -> String {
    let (told, _) = story.judge(until);
    told.lines().filter(|line| line.contains(KEY)).collect::<Vec<_>>().join("\n")
}

const NONE: Option<NetworkFaultForm> = Some(NetworkFaultForm::NoConfiguration);

#[test]
fn only_a_reading_that_shows_a_network_closes_it() {
    let mut story = node();
    reads(&mut story, 10 * SECOND, NONE);
    reads(&mut story, 71 * SECOND, NONE);
    let open = "
        71100 finding.opened node_network_unready/node Agent
        71100 finding.confirmed node_network_unready/node Agent
    ";
    check_lines(&told(&story, 80 * SECOND), open);
    // What cannot be read is no evidence against it.
    reads_as(&mut story, 90 * SECOND, None);
    // The file came, and cannot be loaded.
    reads(&mut story, 100 * SECOND, Some(NetworkFaultForm::BadConfiguration));
    check_lines(&told(&story, 110 * SECOND), open);
    reads(&mut story, 120 * SECOND, None);
    check_lines(
        &told(&story, 130 * SECOND),
        &format!("{open}    120100 finding.closed node_network_unready/node Agent\n"),
    );
}

/// The network may have been ready in between.
#[test]
fn the_time_without_an_agent_does_not_count() {
    for away in [
        Fact::AgentAway { since: ms(20 * SECOND) },
        Fact::AgentBegan { unheard_since: Some(ms(20 * SECOND)) },
    ] {
        let mut story = node();
        reads(&mut story, 10 * SECOND, NONE);
        story.at(300 * SECOND).say(Origin::Agent, away);
        reads(&mut story, 301 * SECOND, NONE);
        check_lines(&told(&story, 350 * SECOND), "");
        reads(&mut story, 361 * SECOND, NONE);
        assert!(told(&story, 370 * SECOND).contains("finding.confirmed"), "{}", told(&story, 370 * SECOND));
    }
    // An open finding stays.
    let mut story = node();
    reads(&mut story, 10 * SECOND, NONE);
    reads(&mut story, 71 * SECOND, NONE);
    story.at(300 * SECOND).say(Origin::Agent, Fact::AgentAway { since: ms(80 * SECOND) });
    reads(&mut story, 301 * SECOND, NONE);
    assert!(!told(&story, 310 * SECOND).contains("closed"), "{}", told(&story, 310 * SECOND));
}
