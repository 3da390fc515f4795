//! What a store says beside the holder of an address: the pod, what keeps the address, a queued release.

use super::story::{CONTAINERD, DAEMON, Story, id, ms, pod_name};
use crate::{
    engine::Engine,
    model::{
        fact::{Bound, Fact, Holder, List, Reservation, ReservationState, Store, StoreKind, StoreRead},
        finding::{Cause, Explain as _, Kind, Stage},
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const CILIUM: &str = "/usr/lib/cni/cilium-cni";

fn node() -> Story {
    let mut story = Story::new();
    story.at(SECOND).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    story
}

/// The runtime has these sandboxes of the pod on record, and a store names sandbox `a`, if it names any.
fn records(story: &mut Story, at: u64, sandboxes: &[char], bound: Bound, state: Option<ReservationState>) {
    records_of(StoreKind::Declared, story, at, sandboxes, bound, state);
}

fn records_of(
    kind: StoreKind,
    story: &mut Story,
    at: u64,
    sandboxes: &[char],
    bound: Bound,
    state: Option<ReservationState>,
) {
    story.at(at).list(List::Runtimes, true, |story| {
        story.on_record(sandboxes);
    });
    let reservation = |state| Reservation {
        address: [10, 7, 0, 9].into(),
        holder: Some(Holder { container: id('a'), ifname: "eth0".to_owned() }),
        since: Timestamp(1),
        in_words: false,
        pod: Some(Box::new(pod_name())),
        state,
    };
    let store = Store { kind, path: "/var/lib/cloud".to_owned(), network: Some("podnet".to_owned()), bound };
    let reservations = state.into_iter().map(reservation).collect();
    story.list(List::Ipam, true, |story| {
        story.listed(Fact::StoreRead(StoreRead { store, reservations, complete: true }));
    });
}

/// Returns the times of the leak's changes of stage, in seconds, and the engine.
fn told(story: &Story, until: u64) -> (Vec<String>, Engine) {
    let (told, engine) = story.judge(until);
    let lines = told.lines().filter(|line| line.contains("leaked_address/podnet/10.7.0.9"));
    let words = lines.filter_map(|line| {
        let (at, rest) = line.split_once(' ')?;
        let at: u64 = at.parse().ok()?;
        Some(format!("{} {}", at / SECOND, rest.split(' ').next()?))
    });
    (words.collect(), engine)
}

/// Sandbox `b` of the pod lives until the end of the fifth minute.
fn second_sandbox(bound: Bound) -> Vec<String> {
    let mut story = node();
    for minute in 1..12 {
        let sandboxes = if minute <= 5 { &['b'][..] } else { &[] };
        records(&mut story, minute * MINUTE, sandboxes, bound, Some(ReservationState::Held));
    }
    told(&story, 12 * MINUTE).0
}

#[test]
fn an_address_of_a_pod_is_not_leaked_while_the_pod_lives() {
    assert_eq!(second_sandbox(Bound::Pod), ["360 finding.opened", "360 finding.confirmed"]);
    assert_eq!(second_sandbox(Bound::Sandbox), ["60 finding.opened", "180 finding.confirmed"]);
}

#[test]
fn a_release_in_a_queue_is_told_as_such_and_is_late_after_the_grace() {
    let mut story = node();
    let queued = ReservationState::Queued { since: ms(5 * MINUTE) };
    for (minute, state) in [(3, ReservationState::Held), (5, queued), (6, queued), (7, queued), (8, queued)] {
        let sandboxes = if minute < 5 { &['a'][..] } else { &[] };
        records(&mut story, minute * MINUTE, sandboxes, Bound::Sandbox, Some(state));
    }
    let (lines, engine) = told(&story, 6 * MINUTE);
    assert_eq!(lines, ["330 finding.opened", "420 finding.confirmed"]);
    let found = engine.findings().find(|it| it.key.as_str().contains("10.7.0.9")).expect("a finding");
    assert_eq!(found.stage, Stage::Confirmed);
    let Kind::LeakedAddress(leak) = &found.kind else { panic!("another kind") };
    let summary = "10.7.0.9 of podnet not freed yet: the release waits in the plugin's queue";
    assert_eq!((leak.cause, leak.summary().as_str()), (Cause::ReleaseQueued, summary));
    let pod = found.pod.as_ref().and_then(|pod| pod.name.as_deref());
    assert_eq!(pod, Some("web-0"), "the store names the pod");
    // The daemon works through its queue.
    records(&mut story, 9 * MINUTE, &[], Bound::Sandbox, None);
    let (lines, _) = told(&story, 10 * MINUTE);
    assert_eq!(lines.last().map(String::as_str), Some("540 finding.closed"));
}

#[test]
fn a_queue_that_is_worked_through_in_time_is_no_finding() {
    let mut story = node();
    let queued = ReservationState::Queued { since: ms(5 * MINUTE) };
    records(&mut story, 3 * MINUTE, &['a'], Bound::Sandbox, Some(ReservationState::Held));
    records(&mut story, 5 * MINUTE, &[], Bound::Sandbox, Some(queued));
    records(&mut story, 5 * MINUTE + 15 * SECOND, &[], Bound::Sandbox, None);
    assert_eq!(told(&story, 12 * MINUTE).0, Vec::<String>::new());
}

/// The DEL of sandbox `a` succeeds in the fourth minute. Cilium's agent has its endpoint until this minute.
fn endpoint(last: u64, state: ReservationState) -> (Vec<String>, Engine) {
    let mut story = node();
    story.network("podnet", &["cilium-cni"]);
    story.at(2 * SECOND).cni_done(100, CILIUM, "ADD", "/run/netns/a");
    for minute in 1..=20 {
        let is_over = minute > 3;
        if minute == 4 {
            story.at(minute * MINUTE).cni_done(110, CILIUM, "DEL", "/run/netns/a");
        }
        let sandboxes = if is_over { &[] } else { &['a'][..] };
        let state = if is_over { state } else { ReservationState::Held };
        let state = (minute <= last).then_some(state);
        records_of(StoreKind::Cilium, &mut story, minute * MINUTE, sandboxes, Bound::Sandbox, state);
    }
    told(&story, 20 * MINUTE)
}

#[test]
fn an_endpoint_that_cilium_removes_by_itself_in_time_is_no_leak() {
    let (lines, engine) = endpoint(20, ReservationState::Held);
    assert_eq!(lines, ["420 finding.opened", "960 finding.confirmed"], "12 minutes after the fourth");
    let found = engine.findings().find(|it| it.key.as_str().contains("10.7.0.9")).expect("a finding");
    let Kind::LeakedAddress(leak) = &found.kind else { panic!("another kind") };
    let why = "The agent removes an endpoint by itself within 10 minutes if the interface is gone, so this is \
               confirmed only after 12 minutes: then the interface is still there, or the agent does not run.";
    assert!(leak.cause().ends_with(why), "{}", leak.cause());
    // The agent takes two rounds of five minutes at most.
    assert_eq!(endpoint(14, ReservationState::Held).0, ["420 finding.opened", "900 finding.closed"]);
    assert_eq!(endpoint(5, ReservationState::Held).0, Vec::<String>::new());
    // It looks for the interface alone, and removes what waits in its queue as well. A new agent may take
    // minutes until it works through the queue.
    let queued = ReservationState::Queued { since: ms(4 * MINUTE) };
    assert_eq!(endpoint(20, queued).0, ["420 finding.opened", "960 finding.confirmed"]);
    assert_eq!(endpoint(8, queued).0, ["420 finding.opened", "540 finding.closed"]);
}

/// Why sandbox `a` has an address in a store of this kind after a DEL without a namespace.
fn cause_after_blind_del(kind: StoreKind) -> Cause {
    let mut story = node();
    story.network("podnet", &["cilium-cni"]);
    story.at(2 * SECOND).cni_done(100, CILIUM, "ADD", "/run/netns/a");
    records_of(kind, &mut story, 3 * SECOND, &['a'], Bound::Sandbox, Some(ReservationState::Held));
    story.at(MINUTE).cni_done(110, CILIUM, "DEL", "");
    for minute in 2..20 {
        records_of(kind, &mut story, minute * MINUTE, &[], Bound::Sandbox, Some(ReservationState::Held));
    }
    let (_, engine) = told(&story, 20 * MINUTE);
    let found = engine.findings().find(|it| it.key.as_str().contains("10.7.0.9")).expect("a finding");
    let Kind::LeakedAddress(leak) = &found.kind else { panic!("another kind") };
    leak.cause
}

/// These plugins name the sandbox to their daemon, and need no namespace for that.
#[test]
fn a_del_without_a_namespace_is_no_cause_where_the_plugin_frees_by_the_sandbox() {
    for kind in [StoreKind::Cilium, StoreKind::UcloudIpamd] {
        assert_eq!(cause_after_blind_del(kind), Cause::DelHollow);
    }
    assert_eq!(cause_after_blind_del(StoreKind::Declared), Cause::DelBlind);
}

/// ipamd drops the record of a pod that is gone. An answer that does not come frees nothing.
#[test]
fn a_record_of_ucloud_s_ipamd_is_leaked_until_it_is_dropped_and_no_answer_closes_nothing() {
    let mut story = node();
    let held = Some(ReservationState::Held);
    records_of(StoreKind::UcloudIpamd, &mut story, MINUTE, &['a'], Bound::Sandbox, held);
    for minute in 2..6 {
        records_of(StoreKind::UcloudIpamd, &mut story, minute * MINUTE, &[], Bound::Sandbox, held);
    }
    story.at(6 * MINUTE).list(List::Ipam, false, |story| {
        let store = Store {
            kind: StoreKind::UcloudIpamd,
            path: "/var/lib/cloud".to_owned(),
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        };
        story.listed(Fact::StoreRead(StoreRead { store, reservations: Vec::new(), complete: false }));
    });
    let (lines, engine) = told(&story, 7 * MINUTE);
    assert_eq!(lines.len(), 2, "opened and confirmed: {lines:?}");
    let found = engine.findings().find(|it| it.key.as_str().contains("10.7.0.9")).expect("a finding");
    assert_eq!(found.stage, Stage::Confirmed);
    let Kind::LeakedAddress(leak) = &found.kind else { panic!("another kind") };
    assert!(leak.cause().starts_with("UCloud's ipamd still has the record"), "{}", leak.cause());
    records_of(StoreKind::UcloudIpamd, &mut story, 8 * MINUTE, &[], Bound::Sandbox, None);
    let (lines, _) = told(&story, 9 * MINUTE);
    assert_eq!(lines.last().map(String::as_str), Some("480 finding.closed"));
}
