//! Attaches every hook and prints each record as it comes: `attach [SECONDS] [no-fentry] [no-kprobes] [all-execs] [log]`.
#![expect(clippy::print_stdout, reason = "an example speaks on stdout")]

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use aya::maps::{MapData, RingBuf};
use probe_common::event::Event;
use probe_user::{
    model::fact::Mechanism,
    source::{
        backfill,
        cgroup::Layout,
        host::HostRoot,
        live::attach::{Options, Probe},
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
    let hierarchy =
        layout.choose(|one| backfill::has_container(&root, one)).context("no cgroup hierarchy is mounted")?;
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

fn print_all(name: &str, ring: &mut RingBuf<MapData>) {
    while let Some(record) = ring.next() {
        match Event::parse(&record) {
            Ok(event) => println!("{name} {}", text(&event)),
            Err(error) => println!("{name} {error}"),
        }
    }
}

fn text(event: &Event<'_>) -> String {
    let header = event.header();
    let task = header.task;
    let comm = String::from_utf8_lossy(task.comm.bytes());
    let rest = match event {
        Event::Exec(body, text) => format!(
            "exec class={:#x} nspid={} pidns={} mntns={} {} {:?}",
            body.class,
            body.ns_pid,
            body.pid_ns,
            body.mnt_ns,
            lossy(text.filename),
            text.args().map(lossy).collect::<Vec<_>>()
        ),
        Event::CniCall(body, variables) => format!(
            "cni caller={} {:?} env={}/{} {} {:?}",
            body.caller.pid,
            lossy(body.caller_comm.bytes()),
            body.env_scanned,
            body.env_total,
            lossy(variables.filename),
            (0..6).map(|i| variables.get(i).map(lossy)).collect::<Vec<_>>()
        ),
        Event::Exit(body) => format!("exit status={:#x} class={:#x}", body.status, body.class),
        Event::Signal(body) | Event::OomKill(body) => format!(
            "signal {} code={} to {} {}",
            body.signal,
            body.code,
            body.target.pid,
            lossy(body.target.comm.bytes())
        ),
        Event::NetnsCreated(body) => format!("netns created {:?}", body.netns),
        Event::NetnsDropped(body) => format!("netns dropped {:?}", body.netns),
        Event::NetnsFreed(body) => format!("netns freed {:?}", body.netns),
        Event::AddressAdded(body) | Event::AddressRemoved(body) => format!(
            "address kind={} {:?}/{} {} netns={:?} flags={:#x} scope={}",
            header.kind,
            body.address,
            body.prefix,
            lossy(body.ifname.bytes()),
            body.netns,
            body.ifa_flags,
            body.scope
        ),
        Event::Listen(body) => {
            format!("listen container={} port={} family={}", body.container, body.port, body.family)
        }
        Event::CgroupCreated(body, path)
        | Event::CgroupRemoved(body, path)
        | Event::CgroupReleased(body, path)
        | Event::CgroupAttached(body, path)
        | Event::CgroupEmptied(body, path) => format!(
            "cgroup kind={} {}:{} level={} member={} {}",
            header.kind,
            body.cgroup.hierarchy,
            body.cgroup.id,
            body.level,
            body.member.pid,
            lossy(path)
        ),
    };
    format!(
        "{:>12} {comm}/{} ppid={} cg={} net={} flags={:#x} {rest}",
        header.at / 1000,
        task.pid,
        task.parent,
        task.cgroup,
        task.netns,
        header.flags
    )
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
