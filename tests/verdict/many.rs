//! Leaks that are too many to report each as a finding.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use probe_user::{
    engine::{Engine, Settings},
    model::{
        change::{Finding, Question},
        finding::{Key, Kind, LeakedAddress, Stage},
    },
};

use crate::{
    drive::Drive,
    sim::{Add, Sim},
};

const MANY: &str = "leaked_address/podnet/stale_record";

fn address(number: u32) -> IpAddr {
    IpAddr::from(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 88, 0, 0)) + number))
}

/// Adds addresses of unknown sandboxes to the store, and waits until they are leaks.
fn leak(drive: &mut Drive, numbers: std::ops::Range<u32>) {
    for number in numbers {
        drive.sim.reserve("podnet", address(number), false);
    }
    // Another event on the node made the agent read the records.
    for seen in drive.sim.answer(&Question::Records) {
        drive.engine.observe(seen);
    }
    pass(drive);
}

fn free(drive: &mut Drive, numbers: std::ops::Range<u32>) {
    for number in numbers {
        drive.sim.free(address(number));
    }
    pass(drive);
}

fn pass(drive: &mut Drive) {
    let at = drive.sim.now() + Duration::from_secs(10 * 60);
    drive.pass_to(at);
}

fn node() -> Drive {
    let mut sim = Sim::new();
    sim.runtime_starts();
    sim.kubelet_starts();
    // This network is in use, so its store is not abandoned.
    sim.sandbox_begins("lives", "web-0");
    sim.add("lives", "keynet", &[IpAddr::from([10, 99, 0, 2])], Add::Succeeds);
    sim.sandbox_runs("lives");
    // A late agent lists the existing node.
    let at = sim.now();
    let mut drive = Drive::new(sim);
    drive.start_late(at);
    drive
}

/// Returns the confirmed findings of leaks: how many addresses each has.
fn open(engine: &Engine) -> Vec<(&Key, u32)> {
    let of = |it: &'_ Finding| match &it.kind {
        Kind::LeakedAddress(leak) if it.stage == Stage::Confirmed => Some(leak.count()),
        _ => None,
    };
    engine.findings().filter_map(|it| Some((&it.key, of(it)?))).collect()
}

/// Returns the number of findings, and the address count of the summary finding.
fn summary(engine: &Engine) -> (usize, Option<u32>) {
    let open = open(engine);
    let many = open.iter().find(|(key, _)| key.as_str() == MANY).map(|(_, count)| *count);
    (open.len(), many)
}

#[test]
fn many_leaks_are_one_finding_until_none_is_left() {
    let mut drive = node();
    leak(&mut drive, 0..100);
    assert_eq!(summary(&drive.engine), (1, Some(100)));
    let finding =
        drive.engine.finding(&Key::parse(MANY).expect("a key")).expect("the finding exists").clone();
    let Kind::LeakedAddress(LeakedAddress { address: lowest, many: Some(many), stores, .. }) = &finding.kind
    else {
        panic!("wrong kind: {finding:?}")
    };
    assert_eq!(*lowest, address(0));
    assert_eq!(many.first, (0..16).map(address).collect::<Vec<_>>());
    assert_eq!((stores.len(), finding.sandboxes.len()), (1, 16));

    // Crossing the limit again changes only the count.
    let opened = drive.findings.len();
    for (freed, left) in [(0..40, 60), (40..95, 5)] {
        free(&mut drive, freed);
        assert_eq!(summary(&drive.engine), (1, Some(left)));
    }
    leak(&mut drive, 200..300);
    assert_eq!(summary(&drive.engine), (1, Some(105)));
    assert_eq!(drive.findings.len(), opened, "another finding was reported: {:?}", drive.findings);

    // Each leaked address is one member.
    let members = |engine: &Engine| -> BTreeSet<u64> {
        engine.many().iter().filter(|it| it.is_confirmed).map(|it| it.leak).collect()
    };
    let before = members(&drive.engine);
    assert_eq!(before.len(), 105);
    free(&mut drive, 200..240);
    leak(&mut drive, 300..340);
    assert_eq!(summary(&drive.engine), (1, Some(105)));
    assert_eq!(members(&drive.engine).difference(&before).count(), 40);

    // A restart from a dump and a new agent both come to the same finding.
    let mut restored = Engine::new(Settings::default());
    drive.engine.dump().into_iter().for_each(|entry| restored.restore(entry));
    assert_eq!(open(&restored), open(&drive.engine));
    let now = drive.sim.now();
    drive.start_late(now);
    pass(&mut drive);
    assert_eq!(summary(&drive.engine), (1, Some(105)));

    free(&mut drive, 95..340);
    assert!(drive.engine.many().is_empty());
    assert_eq!(summary(&drive.engine), (0, None));
    let finding = drive.engine.finding(&Key::parse(MANY).expect("a key")).expect("the finding is remembered");
    assert_eq!(finding.stage, Stage::Closed);
}

#[test]
fn single_findings_stay_beside_a_later_summary() {
    let mut drive = node();
    leak(&mut drive, 0..60);
    assert_eq!(summary(&drive.engine), (60, None));
    leak(&mut drive, 60..80);
    assert_eq!(summary(&drive.engine), (61, Some(20)));
    assert_eq!(drive.engine.many().len(), 20, "the single findings are not members");
    free(&mut drive, 0..70);
    assert_eq!(summary(&drive.engine), (1, Some(10)));
    free(&mut drive, 70..80);
    assert_eq!(summary(&drive.engine), (0, None));
}

#[test]
fn a_survey_lists_each_leak() {
    let mut drive = node();
    leak(&mut drive, 0..200);
    let found = drive.engine.survey(drive.sim.now(), probe_user::engine::Daemons::Observed);
    let leaks = found.iter().filter(|it| matches!(&it.kind, Kind::LeakedAddress(it) if it.many.is_none()));
    assert_eq!(leaks.count(), 200);
}
