//! A container that sends many events gets only its budget on the lifecycle ring, whatever the target of its
//! events. The node's own events in the meantime stay on that ring.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{sys::signal, unistd::Pid};
use probe_common::tally::Ring;
use probe_user::{
    engine::decode::decode,
    model::fact::{Fact, Mechanism, Observation, Signal},
    source::live::attach::Rings,
};
use tests::{
    live::{Setup, load},
    machine, program,
};

use crate::container::{Container, actor};

/// The approximate number of records that one sender gets on the lifecycle ring in a second.
const LIMIT: usize = 64;

/// A process of the node with the name of a runtime.
struct Target {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Target {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = program::alias("actor", folder.path(), "runc")?;
        let mut child =
            Command::new(path).arg("deaf").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the process did not begin");
        Ok(Self { child, _folder: folder })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the observations in both rings, those of the lifecycle ring first.
fn read(rings: &mut Rings) -> Result<[Vec<Observation>; 2]> {
    let mut all = [Vec::new(), Vec::new()];
    for (ring, seen) in [&mut rings.lifecycle, &mut rings.bulk].into_iter().zip(&mut all) {
        while let Some(record) = ring.next() {
            seen.push(decode(&record).context("a record is unreadable")?);
        }
    }
    Ok(all)
}

/// Returns the maximum number of records that one sender can have on the lifecycle ring in that time.
fn most(took: Duration) -> usize {
    LIMIT * (usize::try_from(took.as_secs()).unwrap_or(usize::MAX) + 2)
}

/// The container has the node's pids, as a pod with `hostPID` has.
#[test]
fn a_containers_signals_to_runtimes_use_the_containers_budget() -> Result<()> {
    const SIGNALS: usize = 1000;
    let target = Target::start()?;
    let pid = target.child.id();
    let (mut probe, hierarchy) = load(Setup::default())?;
    let mut rings = probe.take_rings().context("the rings are taken")?;
    let container = Container::create(&hierarchy)?;
    let begun = Instant::now();
    let (who, times) = (pid.to_string(), SIGNALS.to_string());
    let status = container.command(&[&actor()?, "signal", &who, &times])?.status()?;
    ensure!(status.success(), "{status}");
    let most = most(begun.elapsed());
    let other = Container::create(&hierarchy)?;
    let mut other = other.command(&[&actor()?, "signal", &who, "1"])?.spawn()?;
    let others_pid = other.id();
    let status = other.wait()?;
    ensure!(status.success(), "{status}");
    signal::kill(Pid::from_raw(i32::try_from(pid)?), signal::Signal::SIGTERM)?;

    let [lifecycle, bulk] = read(&mut rings)?;
    let of_flood = |one: &&Observation| matches!(&one.fact, Fact::Signaled(it) if it.target.key.pid == pid && ![std::process::id(), others_pid].contains(&it.sender.key.pid));
    let on = |seen: &[Observation]| seen.iter().filter(of_flood).count();
    ensure!(on(&lifecycle) <= most, "{} of {SIGNALS} signals on the lifecycle ring", on(&lifecycle));
    ensure!(on(&lifecycle) + on(&bulk) == SIGNALS, "{} and {} reported", on(&lifecycle), on(&bulk));
    for (sender, whose) in [(std::process::id(), "the node's own"), (others_pid, "another container's")] {
        let is_its = |one: &Observation| matches!(&one.fact, Fact::Signaled(it) if it.target.key.pid == pid && it.sender.key.pid == sender);
        ensure!(lifecycle.iter().any(is_its), "{whose} signal is not on the lifecycle ring");
    }
    ensure!(
        probe.totals()?.lost(Ring::Lifecycle).iter().sum::<u64>() == 0,
        "the lifecycle ring lost records"
    );
    Ok(())
}

/// The budget holds however many namespaces the container makes.
#[test]
fn a_containers_addresses_use_the_containers_budget() -> Result<()> {
    const EACH: u32 = 60;
    let netns: u32 = if machine::is_emulated() { 6 } else { 20 };
    let (mut probe, hierarchy) = load(Setup::default())?;
    let by_hook = |report: &&probe_user::source::live::attach::HookReport| report.signal == Signal::AddressV4;
    let mechanism: Option<Mechanism> = probe.reports().iter().find(by_hook).and_then(|it| it.mechanism);
    let mut rings = probe.take_rings().context("the rings are taken")?;
    let container = Container::create(&hierarchy)?;
    let begun = Instant::now();
    let status =
        container.command(&[&actor()?, "address", &netns.to_string(), &EACH.to_string()])?.status()?;
    ensure!(status.success(), "{status}");
    let most = most(begun.elapsed());
    let [lifecycle, bulk] = read(&mut rings)?;
    let on = |seen: &[Observation]| {
        let ours = |one: &&Observation| matches!(&one.fact, Fact::AddressAdded(it) if it.address.to_string().starts_with("10.9."));
        seen.iter().filter(ours).count()
    };
    ensure!(
        on(&lifecycle) <= most,
        "{} addresses on the lifecycle ring, {} on the other",
        on(&lifecycle),
        on(&bulk)
    );
    // Where neither fentry nor kprobes see addresses, rtnetlink reports them instead of the rings.
    let reported = if mechanism.is_some() { usize::try_from(netns * EACH)? } else { 0 };
    ensure!(on(&lifecycle) + on(&bulk) == reported, "{} and {} reported", on(&lifecycle), on(&bulk));
    Ok(())
}

/// A local user who is not root is in no container, and can send as many events as one.
#[test]
fn a_local_users_namespaces_use_the_budget_of_local_users() -> Result<()> {
    const NOBODY: &str = "65534";
    let count = machine::share_of(400);
    let unshare = ["unshare", "--user", "--map-root-user", "--net", "true"];
    let as_nobody = |times: &str| -> Result<Command> {
        let mut command = Command::new(program::path("actor")?);
        command.args(["as", NOBODY, &actor()?, "repeat", times]).args(unshare);
        Ok(command)
    };
    // Where users may not make user namespaces, they send no such events.
    let allowed = Path::new("/proc/sys/kernel/unprivileged_userns_clone");
    let allowed = !std::fs::read_to_string(allowed).is_ok_and(|text| text.trim() == "0");
    let (mut probe, _) = load(Setup::default())?;
    let mut rings = probe.take_rings().context("the rings are taken")?;
    let begun = Instant::now();
    let status = as_nobody(&count.to_string())?.status()?;
    ensure!(status.success(), "{status}");
    let most = most(begun.elapsed());
    let [lifecycle, bulk] = read(&mut rings)?;
    let on = |seen: &[Observation]| {
        let ours =
            |one: &&Observation| matches!(&one.fact, Fact::NetnsCreated { by, .. } if by.comm == "unshare");
        seen.iter().filter(ours).count()
    };
    ensure!(
        on(&lifecycle) <= most,
        "{} namespaces on the lifecycle ring, {} on the other",
        on(&lifecycle),
        on(&bulk)
    );
    ensure!(!allowed || on(&lifecycle) + on(&bulk) >= count, "{} and {} reported", on(&lifecycle), on(&bulk));
    Ok(())
}
