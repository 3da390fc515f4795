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

fn node() -> Story {
    let mut story = Story::new();
    story.at(SECOND).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    story
}

/// The runtime has these sandboxes of the pod on record, and a store names sandbox `a`, if it names any.
fn records(story: &mut Story, at: u64, sandboxes: &[char], bound: Bound, state: Option<ReservationState>) {
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
    let store = Store {
        kind: StoreKind::Declared,
        path: "/var/lib/cloud".to_owned(),
        network: Some("podnet".to_owned()),
        bound,
    };
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
