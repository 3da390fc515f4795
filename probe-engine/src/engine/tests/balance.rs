//! The balance of plugins: what became of each attachment whose ADD succeeded.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, Story, Who, call, id};
use crate::{
    engine::{Engine, view::BalanceView, world::CheckpointEntry},
    model::{
        fact::{
            Bound, CacheFound, Fact, List, Loss, Network, NetworksRead, NodeFolders, Origin, RuntimeRead,
            RuntimeSandbox, Store, StoreKind, StoreRead,
        },
        finding::{Kind, UnverifiedRelease},
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const PLUGIN: &str = "/usr/lib/cni/cloud-cni";

fn node() -> Story {
    node_of(None)
}

/// A node whose network has this IPAM plugin.
fn node_of(ipam: Option<&str>) -> Story {
    let mut story = Story::new();
    story.at(SECOND).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    let networks = vec![Network {
        name: "cloud".to_owned(),
        plugins: vec!["cloud-cni".to_owned()],
        delegates: Vec::new(),
        ipam: ipam.map(str::to_owned),
        pools: Vec::new(),
    }];
    story.listed(Fact::NetworksRead(NetworksRead {
        networks,
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        written: None,
        folders: NodeFolders::default(),
    }));
    story
}

/// A call of the plugin for a sandbox that ends with this exit code.
fn calls(story: &mut Story, pid: u32, command: &str, netns: &str, digit: char, code: u32) {
    story.kernel(Fact::CniCalled(call(pid, CONTAINERD, PLUGIN, command, netns, digit)));
    story.exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, code << 8);
}

/// The sandboxes that the runtime has on record.
fn records(story: &mut Story, at: u64, sandboxes: &[char]) {
    let sandboxes = sandboxes.iter().map(|it| RuntimeSandbox { id: id(*it), pod: None }).collect();
    let place = "/var/lib/containerd".to_owned();
    story.at(at).list(List::Runtimes, true, |story| {
        story.listed(Fact::RuntimeRead(RuntimeRead {
            place,
            kind: None,
            sandboxes,
            complete: true,
            unread: 0,
        }));
    });
}

fn balance(engine: &Engine) -> BalanceView {
    let mut all = engine.balance();
    assert_eq!(all.len(), 1, "{all:?}");
    let it = all.remove(0);
    let fates = it.released + it.released_without_netns + it.live + it.ended + it.unreleased + it.unknown;
    assert_eq!(it.added, fates, "{it:?}");
    it
}

fn none() -> BalanceView {
    BalanceView {
        plugin: "cloud-cni".to_owned(),
        network: Some("cloud".to_owned()),
        pods: 0,
        sandboxes: 0,
        added: 0,
        released: 0,
        released_without_netns: 0,
        unverified: Some(0),
        live: 0,
        ended: 0,
        unreleased: 0,
        unknown: 0,
    }
}

/// One attachment, whose fate is missing.
fn one() -> BalanceView {
    BalanceView { pods: 1, sandboxes: 1, added: 1, ..none() }
}

#[test]
fn each_attachment_is_added_and_released_once() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 1);
    calls(&mut story, 110, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 120, "ADD", "/run/netns/a", 'a', 0);
    let (_, engine) = story.judge(3 * SECOND);
    assert_eq!(balance(&engine), BalanceView { live: 1, ..one() });

    // A DEL that fails releases nothing, and neither do those after the first that succeeds.
    calls(&mut story, 130, "DEL", "/run/netns/a", 'a', 1);
    let (_, engine) = story.judge(4 * SECOND);
    assert_eq!(balance(&engine), BalanceView { ended: 1, ..one() });
    calls(&mut story, 140, "DEL", "/run/netns/a", 'a', 0);
    calls(&mut story, 150, "DEL", "", 'a', 0);
    // The next sandbox has only a DEL without a namespace.
    calls(&mut story, 160, "ADD", "/run/netns/b", 'b', 0);
    calls(&mut story, 170, "DEL", "", 'b', 0);
    calls(&mut story, 180, "DEL", "", 'b', 0);
    let (_, engine) = story.judge(30 * MINUTE);
    let expected = BalanceView {
        sandboxes: 2,
        added: 2,
        released: 1,
        released_without_netns: 1,
        unverified: Some(1),
        ..one()
    };
    assert_eq!(balance(&engine), expected);
}

/// A second interface of the sandbox, and a repeated ADD after its DEL, make no second sandbox of it.
#[test]
fn pods_and_sandboxes_count_once() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    let mut second = call(110, CONTAINERD, PLUGIN, "ADD", "/run/netns/a", 'a');
    second.variables.ifname = Some("net1".to_owned());
    story.kernel(Fact::CniCalled(second)).exit(Who::new(110, CONTAINERD, "plugin"), class::CNI, 0);
    calls(&mut story, 120, "DEL", "/run/netns/a", 'a', 0);
    calls(&mut story, 130, "ADD", "/run/netns/a", 'a', 0);
    let (_, engine) = story.judge(10 * SECOND);
    let expected = BalanceView { added: 3, released: 1, ended: 2, ..one() };
    assert_eq!(balance(&engine), expected);
    // The pod is known to the next agent.
    let mut next = node();
    next.restored = engine.dump();
    next.at(20 * SECOND);
    calls(&mut next, 140, "ADD", "/run/netns/b", 'b', 0);
    let (_, engine) = next.judge(MINUTE);
    assert_eq!(balance(&engine), BalanceView { sandboxes: 2, added: 4, live: 1, ..expected });
}

/// The row of the pod is forgotten by then. The pod's UID is the same.
#[test]
fn a_sandbox_long_after_its_pod_is_gone_is_of_no_other_pod() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 110, "DEL", "/run/netns/a", 'a', 0);
    let (_, engine) = story.judge(2 * MINUTE);
    assert!(engine.pods().is_empty());
    story.at(2 * MINUTE + 5 * SECOND);
    calls(&mut story, 120, "ADD", "/run/netns/b", 'b', 0);
    let (_, engine) = story.judge(3 * MINUTE);
    assert_eq!(balance(&engine), BalanceView { sandboxes: 2, added: 2, released: 1, live: 1, ..one() });
}

/// The runtime makes the network of the same sandbox again, and it is not known yet how that ends. The
/// account has each ADD.
#[test]
fn an_attachment_that_was_added_again_opens_no_finding() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 110, "DEL", "", 'a', 0);
    calls(&mut story, 120, "ADD", "/run/netns/a", 'a', 0);
    let (told, engine) = story.judge(5 * MINUTE);
    let expected =
        BalanceView { added: 2, released_without_netns: 1, unverified: Some(1), ended: 1, ..one() };
    assert_eq!((told.as_str(), balance(&engine)), ("", expected.clone()));
    story.at(5 * MINUTE);
    calls(&mut story, 130, "DEL", "", 'a', 0);
    let (told, engine) = story.judge(10 * MINUTE);
    assert_eq!(told.matches("finding.opened unverified_release/cloud-cni").count(), 1, "{told}");
    let expected = BalanceView { released_without_netns: 2, unverified: Some(2), ended: 0, ..expected };
    assert_eq!(balance(&engine), expected);
    // The next release names its namespace, and the one after that does not.
    story.at(11 * MINUTE);
    calls(&mut story, 140, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 150, "DEL", "/run/netns/a", 'a', 0);
    calls(&mut story, 160, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 170, "DEL", "", 'a', 0);
    let (_, engine) = story.judge(20 * MINUTE);
    let expected =
        BalanceView { added: 4, released: 1, released_without_netns: 3, unverified: Some(3), ..expected };
    assert_eq!(balance(&engine), expected);
}

#[test]
fn a_release_that_is_repeated_with_its_namespace_is_verified() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 110, "DEL", "", 'a', 0);
    calls(&mut story, 120, "DEL", "/run/netns/a", 'a', 0);
    let (told, engine) = story.judge(5 * MINUTE);
    assert_eq!((told.as_str(), balance(&engine)), ("", BalanceView { released_without_netns: 1, ..one() }));
}

/// A node is drained after records were lost: the DEL that named the namespace may be among them.
#[test]
fn a_release_without_a_namespace_after_a_gap_is_no_release_and_no_leak() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    let mut late = story.clone();
    lose(&mut story);
    calls(&mut story, 110, "DEL", "", 'a', 0);
    let (told, engine) = story.judge(30 * MINUTE);
    assert_eq!(balance(&engine), BalanceView { unknown: 1, ..one() });
    assert!(!told.contains("unverified_release"), "{told}");
    // With its namespace it is a release all the same.
    let mut named = late.clone();
    lose(&mut named);
    calls(&mut named, 110, "DEL", "/run/netns/a", 'a', 0);
    assert_eq!(balance(&named.judge(30 * MINUTE).1), BalanceView { released: 1, ..one() });
    // What is lost after the DEL is none that was before it.
    calls(&mut late, 110, "DEL", "", 'a', 0);
    lose(&mut late);
    let expected = BalanceView { released_without_netns: 1, unverified: Some(1), ..one() };
    assert_eq!(balance(&late.judge(30 * MINUTE).1), expected);
}

fn lose(story: &mut Story) {
    let lost = Fact::Lost { what: Loss::LifecycleRing, count: 3, since: None };
    story.say(Origin::Agent, lost);
}

/// An earlier version counted neither pods nor what nothing verifies.
#[test]
fn an_account_of_an_earlier_version_has_a_pod_for_each_add() {
    let mut story = node();
    let account = r#"{"account":{"plugin":"cloud-cni","network":"cloud","added":3,"released":2,
        "released_without_netns":1,"unreleased":0,"unknown":0}}"#;
    story.restored.push(serde_json::from_str::<CheckpointEntry>(account).expect("an account"));
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    let (_, engine) = story.judge(10 * SECOND);
    let expected = BalanceView {
        pods: 4,
        sandboxes: 4,
        added: 4,
        released: 2,
        released_without_netns: 1,
        // Nobody knows how many, and later ones alone would be too few.
        unverified: None,
        live: 1,
        ..none()
    };
    assert_eq!(balance(&engine), expected);
}

/// A call of the plugin for a sandbox of a Job's pod. Both are numbers.
fn job_calls(story: &mut Story, command: &str, netns: &str, pod: u64, sandbox: u64) {
    let pid = 1000 + u32::try_from(story.facts.len()).expect("few facts");
    let mut called = call(pid, CONTAINERD, PLUGIN, command, netns, 'a');
    called.variables.container_id = Some(format!("{sandbox:064x}"));
    called.variables.args = Some(format!(
        "K8S_POD_NAMESPACE=default;K8S_POD_NAME=job-{pod};K8S_POD_UID={pod:08x}-2222-3333-4444-555555555555"
    ));
    story.kernel(Fact::CniCalled(called)).exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, 0);
}

/// The Jobs of a tenth of a day, one a minute.
const JOBS: u64 = 24 * 60 / 10;

/// A Job in each minute. With `is_second` three of four pods get another sandbox after they have
/// completed, and of these two of three lose their network namespace before their DEL.
fn day(mut story: Story, is_second: bool) -> (Option<Kind>, BalanceView) {
    for job in 0..JOBS {
        story.at((job + 1) * MINUTE);
        job_calls(&mut story, "ADD", "/run/netns/a", job, 2 * job);
        job_calls(&mut story, "DEL", "/run/netns/a", job, 2 * job);
        // containerd calls DEL again when the sandbox is removed.
        job_calls(&mut story, "DEL", "", job, 2 * job);
        if is_second && job % 4 != 0 {
            let netns = if job % 12 < 4 { "/run/netns/b" } else { "" };
            job_calls(&mut story, "ADD", "/run/netns/b", job, 2 * job + 1);
            job_calls(&mut story, "DEL", netns, job, 2 * job + 1);
        }
    }
    let (_, engine) = story.judge(JOBS * MINUTE + 10 * MINUTE);
    let finding = engine.findings().find(|it| it.key.as_str() == "unverified_release/cloud-cni");
    (finding.map(|it| it.kind.clone()), balance(&engine))
}

/// A tenth of 1,440 pods a day, with 2,520 requests for addresses, and 1,800 releases.
#[test]
fn the_day_of_the_first_report_is_out_of_balance() {
    let (finding, told) = day(node(), true);
    let expected = BalanceView {
        pods: 144,
        sandboxes: 252,
        added: 252,
        released: 180,
        released_without_netns: 72,
        unverified: Some(72),
        ..none()
    };
    assert_eq!(told, expected);
    assert!(
        matches!(finding, Some(Kind::UnverifiedRelease(UnverifiedRelease { count: 72, without_del: 0, .. }))),
        "{finding:?}"
    );
    // host-local finds the address by the sandbox's id, so these releases are none that nothing verifies.
    let (finding, told) = day(node_of(Some("host-local")), true);
    assert_eq!((finding, told), (None, BalanceView { unverified: Some(0), ..expected }));
}

#[test]
fn a_day_with_one_sandbox_for_each_pod_is_in_balance() {
    let (finding, told) = day(node(), false);
    let expected = BalanceView { pods: JOBS, sandboxes: JOBS, added: JOBS, released: JOBS, ..none() };
    assert_eq!((finding, told), (None, expected));
}

/// A sandbox whose network namespace ends, and which the runtime forgets at `forgotten`, if at all.
fn forgotten(story: &mut Story, until: u64, forgotten: Option<u64>) {
    records(story, 2 * SECOND, &['a']);
    story.at(3 * SECOND).netns(DAEMON, 4_026_540_000, 7);
    calls(story, 100, "ADD", "/run/netns/a", 'a', 0);
    story.at(MINUTE).dropped(4_026_540_000, 7).freed(4_026_540_000);
    for minute in 2..=until / MINUTE {
        let is_known = forgotten.is_none_or(|at| minute * MINUTE < at);
        records(story, minute * MINUTE, if is_known { &['a'] } else { &[] });
    }
}

#[test]
fn what_nobody_is_left_to_release_is_unreleased_and_stays_so() {
    let mut story = node();
    forgotten(&mut story, 60 * MINUTE, Some(2 * MINUTE));
    for (until, expected) in [
        (30 * SECOND, BalanceView { live: 1, ..one() }),
        (2 * MINUTE + 30 * SECOND, BalanceView { ended: 1, ..one() }),
        (5 * MINUTE, BalanceView { unreleased: 1, ..one() }),
        // The attachment itself is forgotten by now.
        (60 * MINUTE, BalanceView { unreleased: 1, ..one() }),
    ] {
        let mut cut = story.clone();
        cut.facts.retain(|seen| seen.at <= super::story::ms(until));
        assert_eq!(balance(&cut.at(until).judge(until).1), expected, "at {until}");
    }
}

/// Nothing else shows it: no store, and no record of libcni.
#[test]
fn what_was_never_released_is_reported_once_it_is_forgotten() {
    let mut story = node();
    forgotten(&mut story, 60 * MINUTE, Some(2 * MINUTE));
    let (told, engine) = story.judge(60 * MINUTE);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("unverified_release")).collect();
    assert_eq!(lines.len(), 2, "{told}");
    let finding = engine.findings().find(|it| it.key.as_str() == "unverified_release/cloud-cni");
    let kind = finding.map(|it| &it.kind);
    assert!(
        matches!(kind, Some(Kind::UnverifiedRelease(UnverifiedRelease { count: 1, without_del: 1, .. }))),
        "{kind:?}"
    );
}

/// A store that was read whole names nobody: somebody freed the address.
#[test]
fn a_store_that_shows_the_address_free_settles_it() {
    let mut story = node();
    let store = Store {
        kind: StoreKind::HostLocal,
        path: "/var/lib/cni/networks/cloud".to_owned(),
        network: Some("cloud".to_owned()),
        bound: Bound::Sandbox,
    };
    story.list(List::Ipam, true, |story| {
        story.listed(Fact::StoreRead(StoreRead { store, reservations: Vec::new(), complete: true }));
    });
    forgotten(&mut story, 60 * MINUTE, Some(2 * MINUTE));
    let (told, engine) = story.judge(60 * MINUTE);
    assert!(!told.contains("unverified_release"), "{told}");
    assert_eq!(balance(&engine), BalanceView { released: 1, ..one() });
}

#[test]
fn a_del_may_still_come_as_long_as_the_runtime_has_the_sandbox_on_record() {
    let mut story = node();
    forgotten(&mut story, 40 * MINUTE, None);
    let (told, engine) = story.judge(40 * MINUTE);
    assert_eq!(balance(&engine), BalanceView { ended: 1, ..one() });
    assert!(!told.contains("unverified_release"), "{told}");
}

/// The DEL may be among the lost records.
#[test]
fn across_a_gap_nobody_knows() {
    let mut story = node();
    records(&mut story, 2 * SECOND, &['a']);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    lose(story.at(30 * SECOND));
    calls(&mut story, 110, "DEL", "/run/netns/a", 'a', 1);
    for minute in 1..=60 {
        records(&mut story, minute * MINUTE, &[]);
        if minute == 5 {
            assert_eq!(balance(&story.judge(6 * MINUTE).1), BalanceView { unknown: 1, ..one() });
        }
    }
    let (told, engine) = story.judge(60 * MINUTE);
    assert_eq!(balance(&engine), BalanceView { unknown: 1, ..one() });
    assert!(!told.contains("unverified_release"), "{told}");
}

/// A new agent finds the attachment, and sees its DEL.
#[test]
fn attachments_from_before_the_agent_are_in_no_number() {
    let mut story = node();
    story.list(List::CniCache, true, |story| {
        story.listed(Fact::CacheFound(CacheFound {
            network: "cloud".to_owned(),
            container: id('a'),
            ifname: "eth0".to_owned(),
            addresses: Vec::new(),
            netns: None,
            args: Vec::new(),
        }));
    });
    story.at(5 * SECOND);
    calls(&mut story, 100, "DEL", "/run/netns/a", 'a', 0);
    let (_, engine) = story.judge(30 * MINUTE);
    assert_eq!(engine.balance(), []);
}

/// Podman and nerdctl attach containers to the same networks, and no event shows their end.
#[test]
fn containers_without_a_pod_are_in_no_number() {
    let mut story = node();
    let mut add = call(100, CONTAINERD, PLUGIN, "ADD", "/run/netns/a", 'a');
    add.variables.args = None;
    story.at(5 * SECOND).kernel(Fact::CniCalled(add)).exit(
        Who::new(100, CONTAINERD, "plugin"),
        class::CNI,
        0,
    );
    let (_, engine) = story.judge(30 * MINUTE);
    assert_eq!(engine.balance(), []);
}

#[test]
fn the_balance_is_the_same_in_the_next_agent() {
    let mut story = node();
    story.at(2 * SECOND);
    calls(&mut story, 100, "ADD", "/run/netns/a", 'a', 0);
    calls(&mut story, 110, "ADD", "/run/netns/b", 'b', 0);
    calls(&mut story, 120, "DEL", "/run/netns/b", 'b', 0);
    let (_, engine) = story.judge(10 * SECOND);
    let mut next = node();
    next.restored = engine.dump();
    next.at(20 * SECOND);
    calls(&mut next, 130, "DEL", "/run/netns/a", 'a', 0);
    let (_, engine) = next.judge(MINUTE);
    assert_eq!(balance(&engine), BalanceView { sandboxes: 2, added: 2, released: 2, ..one() });
}

#[test]
fn plugins_beyond_the_most_share_an_account() {
    let mut story = node();
    story.at(2 * SECOND);
    for n in 0..100 {
        let digit = char::from_digit(n % 16, 16).expect("a digit");
        let pid = 1000 + 10 * n;
        let path = format!("/usr/lib/cni/cni-{n}");
        story.kernel(Fact::CniCalled(call(pid, CONTAINERD, &path, "ADD", "/run/netns/x", digit)));
        story.exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, 0);
        story.kernel(Fact::CniCalled(call(pid + 1, CONTAINERD, &path, "DEL", "/run/netns/x", digit)));
        story.exit(Who::new(pid + 1, CONTAINERD, "plugin"), class::CNI, 0);
    }
    let (_, engine) = story.judge(10 * SECOND);
    let all = engine.balance();
    assert_eq!(all.len(), 65);
    let other = all.iter().find(|it| it.plugin == "other").expect("the shared one");
    assert_eq!((other.added, other.released), (36, 36));
}
