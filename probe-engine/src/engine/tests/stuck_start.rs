//! Starts that do not end, of which the stories cannot tell.

use super::{
    containerd,
    story::{CONTAINERD, DAEMON, KUBELET, POD_NETNS, Story, UID},
};
use crate::model::{
    fact::{Fact, List, NetworksRead},
    finding::{Explain, Kind, StartCause, StartStep, StuckStart},
};

const SECOND: u64 = 1000;
const CONFIGURATION: &str = "/etc/cni/net.d/10-podnet.conflist";

fn told(story: &Story) -> Vec<String> {
    story.run().into_iter().filter(|line| line.contains(" stuck_start/")).collect()
}

fn waiting(kubelet: bool) -> Story {
    let mut story = Story::new();
    story.at(1).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        if kubelet {
            story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        }
    });
    story.at(10).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story
}

fn configuration(story: &mut Story, undecodable: &[&str], complete: bool) {
    story.listed(Fact::NetworksRead(NetworksRead {
        written: None,
        networks: Vec::new(),
        complete,
        undecodable: undecodable.iter().map(|path| (*path).to_owned()).collect(),
    }));
}

#[test]
fn a_pod_without_a_cni_configuration_does_not_start() {
    for (undecodable, complete, is_told) in
        [(&[CONFIGURATION][..], false, true), (&[], true, true), (&[], false, false)]
    {
        let mut story = waiting(true);
        configuration(story.at(20 * SECOND), undecodable, complete);
        configuration(story.until(60 * SECOND), undecodable, complete);
        story.until(79 * SECOND).moment();
        assert_eq!(told(&story), [""; 0]);
        story.until(81 * SECOND).moment();
        assert_eq!(told(&story), [""; 0], "the configuration was read before");
        configuration(story.until(82 * SECOND), undecodable, complete);
        story.until(83 * SECOND).moment();
        let lines = told(&story);
        assert_eq!(
            !lines.is_empty(),
            is_told,
            "undecodable {undecodable:?}, complete {complete}: stuck_start in {lines:?}"
        );
    }
}

/// The kubelet begins only pods of the host's network where there is no configuration: such as the network plugin's own.
#[test]
fn a_pod_that_began_without_a_configuration_needs_none() {
    let mut story = waiting(true);
    let mut early = waiting(true);
    configuration(early.at(5), &[], true);
    for at in [82, 200] {
        configuration(story.until(at * SECOND), &[], true);
        configuration(early.until(at * SECOND), &[], true);
    }
    let causes = |story: &mut Story| {
        story.until(400 * SECOND).moment();
        let (_, engine) = story.judge(400 * SECOND);
        let kinds = engine.findings().map(|it| it.kind.clone());
        let causes = kinds.filter_map(|kind| {
            let Kind::StuckStart(it) = kind else { return None };
            Some(it.cause)
        });
        causes.collect::<Vec<_>>()
    };
    assert_eq!(causes(&mut story), [Some(StartCause::NotConfigured)]);
    assert_eq!(causes(&mut early), [None]);
}

#[test]
fn where_no_kubelet_runs_or_records_were_lost_no_start_is_stuck() {
    let mut story = waiting(false);
    story.until(400 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);

    let mut story = waiting(true);
    story.at(20).lost().until(400 * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);

    let mut story = waiting(true);
    story.until(400 * SECOND).moment();
    assert!(!told(&story).is_empty());
}

/// The plugin printed what the runtime cannot read, and ended with 0.
#[test]
fn what_waits_for_a_sandbox_that_is_given_up_is_said() {
    let bridge = "/usr/lib/cni/bridge";
    let mut story = waiting(true);
    story.at(20 * SECOND).netns(DAEMON, POD_NETNS, 7);
    story.cni_done(701, bridge, "ADD", containerd::PATH).cni_done(702, bridge, "DEL", containerd::PATH);
    story.dropped(POD_NETNS, 7).freed(POD_NETNS).until(400 * SECOND).moment();
    let (_, engine) = story.judge(401 * SECOND);
    let told = engine.findings().find(|it| matches!(it.kind, Kind::StuckStart(_))).expect("it is told");
    assert_eq!(
        told.kind.explain().summary(),
        "no container has run, and there is no sandbox after 1 sandbox"
    );
    assert!(told.kind.explain().cause().contains("it refused what a plugin had printed"), "{told:?}");
}

#[test]
fn what_a_start_waits_for_is_said_in_a_line() {
    let it = StuckStart {
        step: StartStep::Network,
        sandboxes: 2,
        cause: Some(StartCause::PluginNotCalled),
        plugin: Some("portmap".to_owned()),
        network: Some("podnet".to_owned()),
        config_file: None,
        addresses: vec!["10.88.0.2".parse().expect("an address"), "10.88.0.3".parse().expect("an address")],
    };
    assert_eq!(
        it.summary(),
        "no network after 2 sandboxes: the plugin portmap of the network podnet is not called, 2 addresses left allocated"
    );
    let repair = Kind::from(it.clone()).explain().repair(&[], &[]);
    assert!(repair.iter().any(|line| line.ends_with("-name 'portmap'")), "{repair:?}");
    let it = StuckStart {
        cause: Some(StartCause::NotConfigured),
        config_file: Some(CONFIGURATION.to_owned()),
        ..it
    };
    assert_eq!(it.summary(), format!("no network: the CNI configuration {CONFIGURATION} cannot be decoded"));
    let it = StuckStart { cause: None, plugin: None, config_file: None, ..it };
    assert_eq!(it.summary(), "the sandbox is not ready, and no CNI call is open");
}
