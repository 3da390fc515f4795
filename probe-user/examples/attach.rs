//! Attaches every hook and prints each record as it comes: `attach [SECONDS] [no-fentry] [no-kprobes]
//! [all-execs] [log]`.
#![expect(clippy::print_stdout, reason = "an example speaks on stdout")]

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use probe_user::{
    engine::decode::decode,
    model::fact::Mechanism,
    source::{
        backfill,
        host::HostRoot,
        live::attach::{Options, Probe, RingMap},
        node::cgroup::Layout,
    },
};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let seconds = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(5);
    let mut refused = Vec::new();
    if has("no-fentry") {
        refused.extend([Mechanism::Fentry, Mechanism::Fexit]);
    }
    if has("no-kprobes") {
        refused.extend([Mechanism::Kprobe, Mechanism::Kretprobe]);
    }

    let root = HostRoot::open(Path::new("/"))?;
    let layout = Layout::read(&root)?;
    let hierarchy = layout
        .choose(|one| backfill::has_container(&root, one), || ())
        .context("no cgroup hierarchy is mounted")?;
    let mut options = Options::new(&root, hierarchy);
    options.refused = &refused;
    options.all_execs = has("all-execs");
    options.log = has("log");
    let mut probe = Probe::survey(&options)?;
    println!("attached in {:?}, hierarchy {} at {}", probe.took(), hierarchy.id, hierarchy.mount);
    for report in probe.reports() {
        println!("{:?} by {:?} {:?} {}", report.signal, report.mechanism, report.programs, report.note);
        for (mechanism, why) in &report.missed {
            println!("    not by {mechanism:?}: {why}");
        }
    }

    for program in aya::programs::loaded_programs().flatten() {
        println!("{:?} verified {:?}", program.name_as_str(), program.verified_instruction_count());
    }

    let mut rings = probe.take_rings().context("the rings")?;
    println!("READY");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        print_all("life", &mut rings.lifecycle);
        print_all("bulk", &mut rings.bulk);
        thread::sleep(Duration::from_millis(5));
    }
    println!("{:?}", probe.totals()?);
    Ok(())
}

fn print_all(name: &str, ring: &mut RingMap) {
    while let Some(record) = ring.next() {
        match decode(&record) {
            Ok(seen) => println!("{name} {:>12} {:?}", seen.at.0 / 1000, seen.fact),
            Err(error) => println!("{name} {error}"),
        }
    }
}
