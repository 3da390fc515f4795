//! A torn file in libcni's cache, as a power cut leaves it. The agent works on beside it.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use probe_user::{
    engine::world::CheckpointEntry,
    model::finding::{Blind, BlindSpot, Kind, Stage},
};

use crate::{
    drive::Drive,
    sim::{Add, Del, Sim},
};

const PODS: u32 = 5_000;
/// The number of pods that live at a time on an ordinary node, and the time until the next ones come.
const AT_ONCE: u32 = 100;
const BETWEEN: Duration = Duration::from_secs(180);

fn tear_a_file(drive: &mut Drive) {
    let id = "f".repeat(64);
    drive.sim.torn = Some(format!("/var/lib/cni/results/podnet-{id}-eth0"));
}

/// Returns the number of the engine's entries by kind.
fn rows(drive: &Drive) -> BTreeMap<&'static str, usize> {
    let mut rows = BTreeMap::new();
    for row in drive.engine.dump() {
        let name = match row {
            CheckpointEntry::Attachment(_) => "attachments",
            CheckpointEntry::Sandbox(_) => "sandboxes",
            CheckpointEntry::Record { .. } => "records",
            _ => continue,
        };
        *rows.entry(name).or_default() += 1;
    }
    rows
}

/// Pods come and go, a few at a time. Then nothing happens until the engine has forgotten them.
fn churn(drive: &mut Drive, pods: u32) {
    for first in (0..pods).step_by(AT_ONCE as usize) {
        let names: Vec<String> = (first..first + AT_ONCE).map(|number| format!("s{number}")).collect();
        for (name, number) in names.iter().zip(first..) {
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 88, 0, 2)) + number % AT_ONCE);
            drive.sim.sandbox_begins(name, &format!("pod-{number}"));
            drive.sim.add(name, "podnet", &[address.into()], Add::Succeeds);
            drive.sim.record(name);
        }
        drive.settle();
        let next = drive.sim.now() + Duration::from_secs(3);
        drive.pass_to(next);
        for name in &names {
            drive.sim.stop(name, Del::Succeeds);
            drive.sim.remove(name, Del::Succeeds);
            drive.sim.remove_from_story(name);
        }
        drive.settle();
        let next = drive.sim.now() + BETWEEN;
        drive.pass_to(next);
    }
    let next = drive.sim.now() + Duration::from_secs(40 * 60);
    drive.pass_to(next);
}

fn node() -> Drive {
    let mut drive = Drive::new(Sim::new());
    drive.sim.runtime_starts();
    drive.sim.kubelet_starts();
    drive.settle();
    drive
}

#[test]
fn a_torn_file_causes_no_memory_growth_and_no_readings() {
    let mut drive = node();
    tear_a_file(&mut drive);
    churn(&mut drive, PODS);
    let left = rows(&drive);
    let of = |what: &str| left.get(what).copied().unwrap_or(0);
    assert_eq!((of("attachments"), of("sandboxes")), (0, 0), "{left:?}");
    // Nothing happens for an hour, and the engine asks for no records.
    let asked = drive.asked_records;
    let next = drive.sim.now() + Duration::from_secs(3600);
    drive.pass_to(next);
    assert_eq!(drive.asked_records, asked);
    // The torn file is reported, and nothing else is wrong.
    let reported: Vec<_> = drive.findings.iter().map(|it| (&it.kind, it.stage)).collect();
    let [(Kind::BlindSpot(BlindSpot { spot: Blind::CniCache { path, count: 1 }, .. }), Stage::Confirmed)] =
        reported[..]
    else {
        panic!("{reported:?}")
    };
    assert!(path.ends_with("-eth0"), "{path}");
}

/// The attachment in the file is still valid after the file was torn. The file's name still exists, so no DEL
/// has succeeded.
#[test]
fn the_attachment_of_a_torn_file_stays_cached() {
    let mut drive = node();
    drive.sim.sandbox_begins("a", "web-0");
    let address = Ipv4Addr::new(10, 77, 0, 2).into();
    drive.sim.add("a", "cloudnet", &[address], Add::Succeeds);
    drive.sim.sandbox_runs("a");
    drive.settle();
    let next = drive.sim.now() + Duration::from_secs(10);
    drive.pass_to(next);
    drive.sim.tear("a");
    drive.sim.stop("a", Del::Missing);
    drive.sim.remove("a", Del::Missing);
    let next = drive.sim.now() + Duration::from_secs(600);
    drive.pass_to(next);
    let leaks: Vec<_> = drive
        .findings
        .iter()
        .filter(|it| matches!(it.kind, Kind::LeakedAddress(_)))
        .map(|it| it.stage)
        .collect();
    assert_eq!(leaks, [Stage::Confirmed], "{:?}", drive.findings);
    // Somebody removes the file.
    drive.sim.torn = None;
    let next = drive.sim.now() + Duration::from_secs(120);
    drive.pass_to(next);
    assert!(drive.findings.iter().all(|it| it.stage == Stage::Closed), "{:?}", drive.findings);
}
