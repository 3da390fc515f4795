//! Milestones of the network and the kubelet, and pods that come back with less network.

use probe_common::event::class;

use super::{App, SECOND, booted, ms, read, rebooted};
use crate::{
    engine::{
        boot::report::RecoveryReport,
        tests::story::{DAEMON, KUBELET, Story, Who, call},
        world::table::recovery::TRIES,
    },
    model::{
        fact::{
            Bound, Fact, Network, NetworksRead, NodeFolders, Origin, Reservation, ReservationState, Store,
            StoreKind, StoreRead,
        },
        recovery::{KubeletListens, PreviousBoot, Source, TimedSource},
        time::Timestamp,
    },
};

fn study(story: &Story, until: u64) -> RecoveryReport {
    let (_, engine) = story.judge(until);
    RecoveryReport::of(engine.recovery(), ms(until))
}

fn networks(written: Option<Timestamp>) -> Fact {
    let network = Network {
        name: "podnet".to_owned(),
        plugins: vec!["flannel".to_owned()],
        delegates: Vec::new(),
        ipam: None,
        pools: Vec::new(),
    };
    let networks = if written.is_some() { vec![network] } else { Vec::new() };
    Fact::NetworksRead(NetworksRead {
        networks,
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        written,
        folders: NodeFolders::default(),
    })
}

#[test]
fn the_kubelets_ports_and_the_networks_configuration_are_milestones() {
    let mut story = booted(rebooted(&[App(1)]));
    story.at(5 * SECOND).listen(KUBELET, 0, 10_248);
    story.at(6 * SECOND).listen(KUBELET, 0, 10_250);
    // It is started again.
    story.at(8 * SECOND).listen(KUBELET, 0, 10_248);
    story.at(9 * SECOND).listed(networks(None));
    story.at(10 * SECOND).listed(networks(Some(ms(7_200_000))));
    story.at(11 * SECOND).listed(networks(Some(ms(10_500))));
    story.at(12 * SECOND).listed(networks(Some(ms(11_900))));
    let recovery = story.judge(30 * SECOND).1.recovery().clone();
    let listens = |port, at| KubeletListens { port, at: ms(at) };
    assert_eq!(recovery.kubelet_listens, [listens(10_248, 5000), listens(10_250, 6000)]);
    let configured = TimedSource { at: ms(10_500), source: Source::FileTime };
    assert_eq!(recovery.network_configured, Some(configured));
}

/// A file of Azure dates its allocations by when it was written last.
#[test]
fn only_a_store_with_times_dates_the_first_success() {
    let at = ms(18 * SECOND);
    let first = TimedSource { at, source: Source::FileTime };
    for (kind, first) in [
        (StoreKind::HostLocal, Some(first)),
        (StoreKind::AwsIpamd, Some(first)),
        (StoreKind::AzureCns, None),
        (StoreKind::AzureVnetIpam, None),
        (StoreKind::AzureVnet, None),
    ] {
        let mut story = booted(rebooted(&[App(1)]));
        let reservation = Reservation {
            address: "10.1.0.2".parse().expect("an address"),
            holder: None,
            since: at,
            in_words: false,
            pod: None,
            state: ReservationState::Held,
        };
        let store = Store { kind, path: "/run/store".to_owned(), network: None, bound: Bound::Sandbox };
        let read = StoreRead { store, reservations: vec![reservation], complete: true };
        story.at(20 * SECOND).listed(Fact::StoreRead(read));
        assert_eq!(study(&story, 45 * SECOND).cni.first, first, "{kind:?}");
    }
}

#[test]
fn an_add_that_is_under_way_is_noted_until_it_ends() {
    let mut story = booted(rebooted(&[App(1)]));
    App(1).begin(&mut story, 19 * SECOND);
    App(1).add(&mut story, 20 * SECOND, 1, 0);
    // The plugin's end has not come yet.
    let ends = story.facts.pop().expect("an exit");
    let hung = study(&story, 45 * SECOND).cni;
    assert_eq!((hung.hung, hung.lost.as_secs(), hung.first), (1, 25, None));
    story.facts.push(ends);
    let done = study(&story, 45 * SECOND).cni;
    assert_eq!((done.hung, done.lost.as_secs(), done.first.is_some()), (0, 0, true));
}

/// A listing may find a plugin before the record of its start is read, and gives another time.
#[test]
fn an_add_that_was_listed_first_is_noted_once() {
    let mut story = booted(rebooted(&[App(1)]));
    App(1).begin(&mut story, 19 * SECOND);
    // Its process began after 19.5 s.
    let mut it = call(1950, DAEMON.pid, "/usr/lib/cni/flannel", "ADD", "/run/netns/x", 'a');
    it.variables.container_id = Some(App(1).id(1).as_str().to_owned());
    story.at(20 * SECOND).cni_found(it.clone());
    story.at(19_600).kernel(Fact::CniCalled(it));
    story.at(21 * SECOND).exit(Who::new(1950, DAEMON.pid, "flannel"), class::CNI, 0);
    let done = study(&story, 45 * SECOND).cni;
    assert_eq!((done.hung, done.lost.as_secs(), done.first.is_some()), (0, 0, true));
}

#[test]
fn a_pod_that_lacks_an_interface_came_back_with_less() {
    let mut before: PreviousBoot = rebooted(&[App(1), App(2)]);
    for pod in before.pods.iter_mut().flatten() {
        pod.interfaces = vec!["eth0".to_owned(), "net1".to_owned()];
    }
    let mut story = booted(before);
    App(1).begin(&mut story, 19 * SECOND);
    App(1).add(&mut story, 20 * SECOND, 1, 0);
    App(1).run(&mut story, 21 * SECOND, 2, "main");
    // No network of this one was seen.
    App(2).up(&mut story, 22 * SECOND);
    let less = study(&story, 60 * SECOND).less_network;
    let told: Vec<_> = less.iter().map(|it| (it.pod.name.as_deref(), it.missing.as_slice())).collect();
    assert_eq!(told, [(Some("app-1"), &["net1".to_owned()][..])]);
    let (_, engine) = story.judge(60 * SECOND);
    let running = engine.running_pods().pods;
    let interfaces: Vec<_> = running.iter().map(|pod| pod.interfaces.join(" ")).collect();
    assert_eq!(interfaces, ["eth0", ""], "as the next boot will know them");
}

const MINUTE: u64 = 60 * SECOND;

/// The first pod went to another node while this one was down, so it is awaited for ever.
#[test]
fn long_after_the_boot_the_adds_of_awaited_pods_alone_are_noted() {
    let mut story = booted(rebooted(&[App(1)]));
    App(2).begin(&mut story, 40 * MINUTE);
    App(2).add(&mut story, 40 * MINUTE + 1000, 1, 0);
    App(1).begin(&mut story, 41 * MINUTE);
    App(1).add(&mut story, 41 * MINUTE + 1000, 1, 0x100);
    let (_, engine) = story.judge(42 * MINUTE);
    let tried: Vec<_> = engine.recovery().tries.iter().map(|it| &it.sandbox).collect();
    assert_eq!(tried, [&App(1).id(1)]);
}

/// It ends the time without a network, which would grow for ever.
#[test]
fn the_first_success_is_noted_however_late_it_comes() {
    let mut story = booted(rebooted(&[]));
    App(1).begin(&mut story, 20 * MINUTE);
    App(1).add(&mut story, 20 * MINUTE, 1, 0x100);
    App(2).begin(&mut story, 40 * MINUTE);
    App(2).add(&mut story, 40 * MINUTE + 1000, 1, 0);
    App(3).begin(&mut story, 41 * MINUTE);
    App(3).add(&mut story, 41 * MINUTE + 1000, 1, 0);
    let cni = study(&story, 50 * MINUTE).cni;
    assert_eq!((cni.lost.as_secs() / 60, cni.first.is_some()), (20, true));
    let (_, engine) = story.judge(50 * MINUTE);
    assert_eq!(engine.recovery().tries.len(), 2, "the one that failed, and the first that succeeded");
}

/// Each try of a pod is a new sandbox, and there are many before the network comes back.
#[test]
fn the_first_success_is_noted_however_many_failed_before_it() {
    let mut story = booted(rebooted(&[]));
    let many = u32::try_from(TRIES).expect("few") + 50;
    (0..many).for_each(|n| App(1).add(&mut story, MINUTE + u64::from(n) * 200, n, 0x100));
    App(50).add(&mut story, 10 * MINUTE, 1, 0);
    let (_, engine) = story.judge(11 * MINUTE);
    let after = engine.recovery().clone();
    let cni = RecoveryReport::of(&after, ms(11 * MINUTE)).cni;
    assert_eq!((cni.lost.as_secs() / 60, cni.first.is_some()), (9, true));
    assert_eq!((after.tries.len(), after.tries_left_out), (TRIES, 51));
    // Long after the boot others are of no interest.
    App(60).add(&mut story, 40 * MINUTE, 1, 0);
    assert_eq!(story.judge(41 * MINUTE).1.recovery().tries_left_out, 51);
}

/// The plugins of a chain are called one after the other.
#[test]
fn a_chain_whose_second_plugin_fails_is_no_first_success() {
    for second in [0, 0x100] {
        let mut story = booted(rebooted(&[]));
        App(1).add(&mut story, 20 * MINUTE, 1, 0x100);
        App(2).add(&mut story, 40 * MINUTE, 1, 0);
        let mut chained = call(6000, DAEMON.pid, "/usr/lib/cni/portmap", "ADD", "/run/netns/x", 'a');
        chained.variables.container_id = Some(App(2).id(1).as_str().to_owned());
        story.at(40 * MINUTE + 200).kernel(Fact::CniCalled(chained));
        story.at(40 * MINUTE + 300).exit(Who::new(6000, DAEMON.pid, "portmap"), class::CNI, second);
        assert_eq!(study(&story, 50 * MINUTE).cni.first.is_some(), second == 0);
    }
}

/// No other has failed by then.
#[test]
fn the_first_success_is_noted_while_another_add_hangs() {
    let mut story = booted(rebooted(&[]));
    App(1).add(&mut story, 20 * MINUTE, 1, 0x100);
    story.facts.pop().expect("the plugin's end");
    App(2).add(&mut story, 40 * MINUTE, 1, 0);
    assert!(study(&story, 50 * MINUTE).cni.first.is_some());
}

/// Its beginning counts.
#[test]
fn an_add_that_ends_behind_the_window_is_one_of_the_boot() {
    let mut story = booted(rebooted(&[]));
    App(1).begin(&mut story, 30 * MINUTE - 5000);
    App(1).add(&mut story, 30 * MINUTE - 50, 1, 0);
    assert!(study(&story, 40 * MINUTE).cni.first.is_some());
}

/// Nothing changes the report of such a boot any more; otherwise it would be written each second.
#[test]
fn an_agent_that_was_installed_long_after_the_boot_notes_no_adds_and_looks_for_no_pods() {
    let mut story = Story::new();
    story.at(40 * MINUTE).say(Origin::Agent, read(PreviousBoot::default())).at(41 * MINUTE).moment();
    let before = story.judge(43 * MINUTE).1.recovery().clone();
    App(1).up(&mut story, 43 * MINUTE);
    App(1).add(&mut story, 43 * MINUTE + 1000, 1, 0);
    App(2).up(&mut story, 44 * MINUTE);
    let (_, engine) = story.judge(45 * MINUTE);
    assert_eq!(*engine.recovery(), before);
}

/// Pods that run may have been deployed since.
#[test]
fn an_agent_that_was_installed_long_after_the_boot_does_not_say_whether_it_met_its_target() {
    for (began, knows) in [(40, false), (10, true)] {
        let mut story = Story::new();
        App(1).up(&mut story, 5 * MINUTE);
        story.at(began * MINUTE).say(Origin::Agent, read(PreviousBoot::default()));
        let (_, engine) = story.judge(50 * MINUTE);
        let mut recovery = engine.recovery().clone();
        recovery.target = Some(std::time::Duration::from_secs(60));
        let target = RecoveryReport::of(&recovery, ms(50 * MINUTE)).target;
        assert_eq!(target.is_some(), knows, "{target:?}");
    }
}
