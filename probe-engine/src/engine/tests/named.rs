//! Pods whose UID is known before their name, as in a burst of pods whose volumes are being mounted.

use super::story::{CONTAINERD, Story, UID, leaf, ms, run::feed};
use crate::{
    engine::{Engine, Settings},
    model::{
        fact::{Fact, Observation, Origin, Role},
        time::Timestamp,
    },
};

const OTHER: &str = "/kubepods/besteffort/pod99999999-2222-3333-4444-555555555555";

/// The pod's cgroup is made at 100, and its network three seconds later. Other events come in between.
fn burst(kubelet: bool) -> Story {
    let mut story = Story::new();
    story.listed(Fact::KubeletExpected(kubelet));
    story.at(100).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.until(1000).mkdir(30, "/system.slice/other.service");
    story.until(3100).cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", "/run/netns/a");
    story.until(4000);
    story
}

fn told(story: &Story) -> Vec<String> {
    let mut lines = story.run();
    lines.retain(|line| !line.starts_with('?') && !line.contains("sandbox.created"));
    lines
}

#[test]
fn a_pod_is_first_reported_with_its_name_and_nothing_else_waits_for_that() {
    assert_eq!(
        told(&burst(true)),
        [
            "1000 cgroup.created other.se",
            "100 pod.first_seen [default/web-0] late",
            "100 cgroup.created pod11111 [default/web-0] late",
            "3100 cni.started ADD bridge [default/web-0 a]",
        ]
    );
}

/// Without a kubelet (crictl), no source will give the pod's name.
#[test]
fn without_a_kubelet_a_name_is_not_waited_for() {
    assert_eq!(
        told(&burst(false))[..2],
        ["100 pod.first_seen [unnamed]", "100 cgroup.created pod11111 [unnamed]"]
    );
}

#[test]
fn a_name_that_never_comes_is_not_waited_for_for_long() {
    let mut story = Story::new();
    story.listed(Fact::KubeletExpected(true));
    story.at(100).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.until(9_000).mkdir(30, "/system.slice/other.service");
    assert_eq!(told(&story), ["9000 cgroup.created other.se"]);
    story.until(12_000);
    assert_eq!(
        told(&story)[1..],
        ["100 pod.first_seen [unnamed] late", "100 cgroup.created pod11111 [unnamed] late"]
    );
}

/// The pod was rejected before it had a sandbox.
#[test]
fn a_pod_that_goes_without_a_name_is_reported_when_it_goes() {
    let mut story = Story::new();
    story.listed(Fact::KubeletExpected(true));
    story.at(100).mkdir(20, OTHER).until(3000).rmdir(20, OTHER).until(5000);
    let lines = told(&story);
    assert_eq!(
        lines,
        [
            "100 pod.first_seen [unnamed]",
            "100 cgroup.created pod99999 [unnamed]",
            "3000 cgroup.removed pod99999 [unnamed]",
            "3000 pod.gone 2900 ms [unnamed]",
        ]
    );
}

/// What was put aside for a pod's name stays aside over a restart.
#[test]
fn nothing_waits_for_a_pod_without_a_name_after_a_restart() {
    let mut story = Story::new();
    story.listed(Fact::KubeletExpected(true));
    story.at(100).mkdir(20, &format!("/kubepods/besteffort/pod{UID}")).until(3000);
    let (told, engine) = story.judge(3000);
    assert!(!told.contains("pod.first_seen"), "{told}");
    let mut next = Engine::new(Settings::default());
    engine.dump().into_iter().for_each(|entry| next.restore(entry));
    assert_eq!((next.deadline(), next.dump()), (engine.deadline(), engine.dump()));
    let mut story = Story::new();
    story.at(3100).mkdir(30, "/system.slice/other.service").until(3300);
    let lines = feed(&mut next, &story.facts, Timestamp::ZERO);
    assert_eq!(lines, ["3100 cgroup.created other.se"]);
}

/// No agent runs from 2 s to 20 s, far longer than the wait for a name. The next one reads what the hooks
/// kept meanwhile.
#[test]
fn a_name_that_came_while_no_agent_ran_is_waited_for_anew() {
    let mut story = Story::new();
    story.listed(Fact::KubeletExpected(true));
    story.at(100).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    let (told, engine) = story.judge(2000);
    assert!(!told.contains("pod.first_seen"), "{told}");
    let mut next = Engine::new(Settings::default());
    engine.dump().into_iter().for_each(|entry| next.restore(entry));
    next.observe(Observation { at: ms(20_000), origin: Origin::Agent, fact: Fact::AgentArrived });
    let mut story = Story::new();
    story.at(5000).mkdir(21, &leaf('a')).at(20_050).moment();
    story.at(20_100).say(Origin::Agent, Fact::AgentBegan { unheard_since: None });
    story.at(20_200).container('a', Role::Sandbox, 'a', "");
    let mut lines = feed(&mut next, &story.facts, Timestamp::ZERO);
    lines.retain(|line| !line.starts_with('?'));
    assert_eq!(
        lines,
        [
            "100 pod.first_seen [default/web-0]",
            "100 cgroup.created pod11111 [default/web-0]",
            "5000 sandbox.created [default/web-0 a]",
            "5000 cgroup.created aaaaaaaa [default/web-0 a]",
        ]
    );
}
