//! A file of libcni's cache that a power cut has torn: the node lives on beside it.

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
/// As many live at a time as on a usual node, for so long after they have gone until the next come.
const AT_ONCE: u32 = 100;
const BETWEEN: Duration = Duration::from_secs(180);

fn torn(drive: &mut Drive) {
    let id = "f".repeat(64);
    drive.sim.torn = Some(format!("/var/lib/cni/results/podnet-{id}-eth0"));
}

/// The engine's rows, by what they are.
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

/// Pods come and go, a few at a time; then there is peace for as long as anything is remembered for.
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
            drive.sim.over(name);
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
fn memory_is_flat_beside_a_torn_file_and_nothing_is_read_for_it() {
    let mut drive = node();
    torn(&mut drive);
    churn(&mut drive, PODS);
    let left = rows(&drive);
    let of = |what: &str| left.get(what).copied().unwrap_or(0);
    assert_eq!((of("attachments"), of("sandboxes")), (0, 0), "{left:?}");
    // Nothing happens for an hour, and nothing is read in it.
    let asked = drive.asked_records;
    let next = drive.sim.now() + Duration::from_secs(3600);
    drive.pass_to(next);
    assert_eq!(drive.asked_records, asked);
    // The file itself is told of, and nothing else is wrong.
    let told: Vec<_> = drive.told.iter().map(|it| (&it.kind, it.stage)).collect();
    let [(Kind::BlindSpot(BlindSpot { spot: Blind::CniCache { path, count: 1 }, .. }), Stage::Confirmed)] =
        told[..]
    else {
        panic!("{told:?}")
    };
    assert!(path.ends_with("-eth0"), "{path}");
}

/// What was in the file before it was torn is as it was: its name is there, so that no DEL has succeeded.
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
    let leaks: Vec<_> =
        drive.told.iter().filter(|it| matches!(it.kind, Kind::LeakedAddress(_))).map(|it| it.stage).collect();
    assert_eq!(leaks, [Stage::Confirmed], "{:?}", drive.told);
    // It is removed by hand.
    drive.sim.torn = None;
    let next = drive.sim.now() + Duration::from_secs(120);
    drive.pass_to(next);
    assert!(drive.told.iter().all(|it| it.stage == Stage::Closed), "{:?}", drive.told);
}
