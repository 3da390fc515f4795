//! Starts that do not end, in cases that the recorded stories do not cover.

use super::{
    containerd,
    story::{CONTAINERD, DAEMON, KUBELET, POD_NETNS, SHIM, Story, UID, Who, id, ms, uid},
};
use crate::model::{
    fact::{Fact, ImageWork, List, NetworksRead, NodeFolders, Origin, Said, Span, Speaker, WordsFound},
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
        loading: None,
        networks: Vec::new(),
        complete,
        undecodable: undecodable.iter().map(|path| (*path).to_owned()).collect(),
        folders: NodeFolders::default(),
    }));
}

#[test]
fn a_pod_without_a_cni_configuration_does_not_start() {
    let undecodable: &[&str] = &[CONFIGURATION];
    for (undecodable, complete, is_on_record, is_told) in [
        (undecodable, false, true, true),
        (&[], true, true, true),
        (&[], false, true, false),
        // Nothing shows that the runtime has begun a sandbox: the kubelet may wait for a volume.
        (undecodable, false, false, false),
        (&[], true, false, false),
    ] {
        let mut story = waiting(true);
        story.at(15 * SECOND).on_record(if is_on_record { &['a'] } else { &[] });
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
            "undecodable {undecodable:?}, complete {complete}, on record {is_on_record}: stuck_start in {lines:?}"
        );
    }
}

/// Without a CNI configuration the kubelet begins only pods on the host's network, such as the network
/// plugin's own.
#[test]
fn a_pod_that_began_without_a_configuration_needs_none() {
    let mut story = waiting(true);
    let mut early = waiting(true);
    configuration(early.at(5), &[], true);
    story.at(15 * SECOND).on_record(&['a']);
    early.at(15 * SECOND).on_record(&['a']);
    for at in [82, 200, 310] {
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

/// What is reported about a pod without a sandbox, at the end of the whole limit.
#[test]
fn a_pod_for_which_no_sandbox_was_begun_may_wait_for_a_volume() {
    let summary = |undecodable: &[&str]| {
        let mut story = waiting(true);
        story.at(15 * SECOND).on_record(&[]);
        for at in [20, 82, 305] {
            configuration(story.until(at * SECOND), undecodable, false);
        }
        let (_, engine) = story.until(320 * SECOND).judge(321 * SECOND);
        let told = engine.findings().find(|it| matches!(it.kind, Kind::StuckStart(_))).expect("it is told");
        let is_open = told.kind.explain().cause().contains("a volume, a Secret or a ConfigMap");
        (told.kind.explain().summary(), is_open)
    };
    let waits = "no container has run, and the runtime has begun no sandbox";
    assert_eq!(summary(&[]), (waits.to_owned(), true));
    let also = format!("{waits}; the CNI configuration {CONFIGURATION} cannot be decoded");
    assert_eq!(summary(&[CONFIGURATION]), (also, true));
}

/// The answer of the logs to a question about sandbox `a`: a pull that began a minute ago.
fn pulls(until: u64, refused: bool) -> Fact {
    Fact::ImageWork(Box::new(ImageWork {
        container: id('a'),
        pulls: Vec::new(),
        other_pulls: vec![Span { began: ms((until - 60) * SECOND), ended: ms(until * SECOND) }],
        refused: refused.then(|| ms((until - 30) * SECOND)).into_iter().collect(),
        services_unread: Vec::new(),
        created: None,
        other_creates: Vec::new(),
    }))
}

/// A large image is pulled for half an hour. The pod whose own pull failed waits for something else.
#[test]
fn a_pod_that_waits_while_its_runtime_pulls_is_not_stuck() {
    let ready = || {
        let mut story = waiting(true);
        containerd::start(&mut story);
        story
    };
    for (ended, refused, is_told) in [(331, false, false), (331, true, true), (300, false, true)] {
        let mut story = ready();
        story.until(332 * SECOND).listed(pulls(ended, refused)).until(615 * SECOND).moment();
        assert_eq!(!told(&story).is_empty(), is_told, "until {ended}, refused {refused}: {:?}", told(&story));
    }
    // It is asked about every three minutes, and for an hour.
    let mut story = ready();
    for asked in (331..3600).step_by(180) {
        story.until((asked + 1) * SECOND).listed(pulls(asked, false));
    }
    let last = (331..3600).step_by(180).last().expect("it is asked");
    story.until((last + 599 - 10) * SECOND).moment();
    assert_eq!(told(&story), [""; 0]);
    story.until((last + 610) * SECOND).moment();
    assert!(told(&story).iter().any(|line| line.contains("finding.confirmed")), "{:?}", told(&story));
}

/// A back-off of five minutes, and then a pull of minutes.
#[test]
fn a_sandbox_whose_next_image_is_pulled_is_not_abandoned() {
    let judged = |is_pulling: bool| {
        let mut story = waiting(true);
        containerd::start(&mut story);
        containerd::run(&mut story);
        story.at(200).exit(Who::new(693, SHIM, "sleep").within(22, POD_NETNS), containerd::TOP, 0x100);
        story.until(332 * SECOND);
        if is_pulling {
            story.listed(pulls(331, false));
        }
        story.until(400 * SECOND).moment();
        story.run().iter().any(|line| line.contains(" abandoned_sandbox/"))
    };
    assert_eq!((judged(true), judged(false)), (false, true));
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

/// The plugin printed something that the runtime cannot read, and ended with 0.
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

/// The kubelet's words, in answer to a question about what the pod has waited for since then.
fn said(since: u64, text: &str) -> Fact {
    Fact::WordsFound(WordsFound {
        uid: uid(),
        since: ms(since),
        said: vec![Said {
            by: Speaker::Kubelet,
            text: text.to_owned(),
            at: "2026-11-25T09:29:07Z".to_owned(),
            source: "journal".to_owned(),
        }],
        unsaid: None,
    })
}

/// Returns the end of the summary of the finding, as of this second.
fn quoted(story: &mut Story, second: u64) -> Option<String> {
    let (_, engine) = story.until(second * SECOND).judge((second + 1) * SECOND);
    let told = engine.findings().find(|it| matches!(it.kind, Kind::StuckStart(_))).expect("it is told");
    told.kind.explain().summary().split_once("the kubelet says: ").map(|(_, said)| said.to_owned())
}

/// An answer about an earlier wait counts for nothing, and a further try of the runtime keeps the words.
#[test]
fn the_words_of_a_finding_stay_while_the_runtime_tries_again() {
    let mut story = waiting(true);
    story.until(290 * SECOND).listed(said(9, "of before"));
    assert_eq!(quoted(&mut story, 305), None);
    let mut story = waiting(true);
    story.until(290 * SECOND).listed(said(10, "no space left"));
    assert_eq!(quoted(&mut story, 305).as_deref(), Some("no space left"));
    story.at(330 * SECOND).netns(DAEMON, POD_NETNS, 7);
    story.cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", containerd::PATH);
    assert_eq!(quoted(&mut story, 340).as_deref(), Some("no space left"));
}

/// The runtime's own calls say where it looks. Those of a plugin, and of other programs, do not count.
#[test]
fn an_executable_is_missing_where_the_runtime_looks() {
    let mut story = waiting(true);
    story.at(15 * SECOND).network("podnet", &["bridge", "portmap"]);
    story.at(20 * SECOND).netns(DAEMON, POD_NETNS, 7);
    story.cni_done(701, "/usr/lib/cni/bridge", "ADD", containerd::PATH);
    let folders = |story: &Story, until: u64| {
        let (_, engine) = story.judge(until * SECOND);
        let told = engine.findings().find_map(|it| {
            let Kind::StuckStart(it) = &it.kind else { return None };
            Some((it.cause, it.folders.clone()))
        });
        told.expect("it is told")
    };
    let expected = vec!["/opt/other".to_owned(), "/usr/lib/cni/".to_owned()];
    story.until(85 * SECOND).network("podnet", &["bridge", "portmap"]).until(90 * SECOND).moment();
    assert_eq!(folders(&story, 91), (Some(StartCause::PluginNotCalled), expected.clone()));
    // The next agent knows it too.
    let (_, engine) = story.judge(91 * SECOND);
    let mut next = Story::new();
    next.restored = engine.dump();
    next.at(92 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since: None });
    next.until(160 * SECOND).network("podnet", &["bridge", "portmap"]).until(170 * SECOND).moment();
    assert_eq!(folders(&next, 171), (Some(StartCause::PluginNotCalled), expected));
}

#[test]
fn what_a_start_waits_for_is_said_in_a_line() {
    let it = StuckStart {
        step: StartStep::Network,
        sandboxes: 2,
        cause: Some(StartCause::PluginNotCalled),
        plugin: Some("portmap".to_owned()),
        network: Some("podnet".to_owned()),
        folders: vec!["/opt/cni two/bin".to_owned(), "/usr/lib/cni".to_owned()],
        config_file: None,
        addresses: vec!["10.88.0.2".parse().expect("an address"), "10.88.0.3".parse().expect("an address")],
        said: Vec::new(),
        unsaid: None,
    };
    assert_eq!(
        it.summary(),
        "no network after 2 sandboxes: the plugin portmap of the network podnet is not called, 2 addresses left allocated"
    );
    let repair = |it: &StuckStart| Kind::from(it.clone()).explain().repair(&[], &[]);
    let find = "find -L '/opt/cni two/bin' '/usr/lib/cni' -maxdepth 1 -type f -name 'portmap'";
    assert!(repair(&it).iter().any(|line| line == find), "{:?}", repair(&it));
    let nowhere = StuckStart { folders: Vec::new(), ..it.clone() };
    assert!(repair(&nowhere).iter().all(|line| !line.starts_with("find ")), "{:?}", repair(&nowhere));
    let loopback = StuckStart { plugin: Some("loopback".to_owned()), network: None, ..nowhere };
    let summary =
        "no network after 2 sandboxes: the plugin loopback is not called, 2 addresses left allocated";
    assert_eq!(loopback.summary(), summary);
    let it = StuckStart {
        cause: Some(StartCause::NotConfigured),
        config_file: Some(CONFIGURATION.to_owned()),
        ..it
    };
    assert_eq!(it.summary(), format!("no network: the CNI configuration {CONFIGURATION} cannot be decoded"));
    let it = StuckStart { cause: None, plugin: None, config_file: None, ..it };
    assert_eq!(it.summary(), "the sandbox is not ready, and no CNI call is open");
}
