//! An agent that does not run for a while: what it concludes from calls that a runtime makes meanwhile, one
//! after the other, and whether it reports what it missed.

use std::{
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tests::{
    guard::{
        address::{AddressGuard, Prefix},
        netns::MountedNetns,
    },
    live::Shared,
    machine,
    stream::{Stream, is_unheard},
};

use crate::{
    cni::call::{Environment, Runtime},
    container::new_id,
};

/// How long a call may take.
const LIMIT: u32 = 3;
/// How long each call takes.
const CALL: u32 = 1;
/// How long the agent is stopped.
const STOPPED: u32 = 5;
/// Calls at a time.
const LANES: usize = 6;

/// Returns the unit of these times.
fn unit() -> Duration {
    // An emulated machine may need seconds to start a program.
    Duration::from_secs(if machine::is_emulated() { 10 } else { 1 })
}

/// Returns how often the agent is stopped. Each time, all lanes are within a call, so once is enough where it
/// takes a minute.
fn stops() -> u32 {
    if machine::is_emulated() { 1 } else { 6 }
}

/// An agent that is stopped. It continues when this is dropped.
struct Stop(Pid);

impl Stop {
    fn of(pid: u32) -> Result<Self> {
        let pid = Pid::from_raw(i32::try_from(pid)?);
        kill(pid, Signal::SIGSTOP).context("stop the agent")?;
        Ok(Self(pid))
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // The agent may have ended with the test.
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Each call ends well within the limit, and the agent is stopped for longer than that.
#[test]
fn an_agent_that_is_stopped_finds_nothing_wrong_with_healthy_calls() -> Result<()> {
    let limit = format!("{}s", (unit() * LIMIT).as_secs());
    let mut stream = Stream::start(&["watch", "--cni-slow", &limit])?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(|| calls(&is_over))).collect();
        let stopped = stop_again_and_again(stream.pid());
        is_over.store(true, Ordering::Relaxed);
        for lane in lanes {
            lane.join().map_err(|_panic| anyhow!("a lane panicked"))??;
        }
        stopped
    })?;
    stream.until("the end of a call", |event| event["event"] == "cni.finished")?;
    let (received, _) = stream.end()?;
    let mut found = Vec::new();
    for event in &received.events {
        let key = event["finding"]["key"].as_str().unwrap_or_default();
        if !key.is_empty() && !key.starts_with("blind_spot/") {
            found.push((key, &event["text"]));
        }
    }
    let made = received.named("cni.finished").count();
    ensure!(found.is_empty(), "of {made} calls: {found:?}");
    Ok(())
}

/// Only netlink reports addresses on a kernel without fentry and kprobes, and only of namespaces that the
/// agent has found. Elsewhere nothing is missed.
#[test]
fn an_agent_that_is_stopped_reports_a_gap_if_an_address_came_and_went_unheard() -> Result<()> {
    let is_missed = Shared::start()?.needs_netlink();
    let mut stream = Stream::start(&["watch"])?;
    let stop = Stop::of(stream.pid())?;
    let netns = MountedNetns::create()?;
    let inode = netns.inode();
    AddressGuard::add(&netns, "lo", &[Prefix { address: "192.0.2.9".parse()?, length: 32 }])?.end()?;
    thread::sleep(unit() * CALL * 2);
    netns.end()?;
    drop(stop);
    stream.until("the namespace's end", |event| {
        event["event"] == "netns.destroyed" && event["netns"]["inode"] == inode
    })?;
    if is_missed {
        stream.until("the gap", is_unheard)?;
    }
    let (received, _) = stream.end()?;
    let gaps: Vec<_> = received.events.iter().filter(|event| is_unheard(event)).collect();
    ensure!(gaps.len() == usize::from(is_missed), "{gaps:?}");
    for gap in gaps {
        let lasted = gap["gap"]["lasted_ns"].as_str().context("a gap of netlink has a length")?;
        ensure!(Duration::from_nanos(lasted.parse()?) > unit() * CALL * 2, "{gap}");
    }
    Ok(())
}

fn stop_again_and_again(pid: u32) -> Result<()> {
    let stops = stops();
    for number in 0..stops {
        // Each stop is at another moment of the calls.
        thread::sleep(unit() * CALL + unit() * CALL * number / stops);
        let stop = Stop::of(pid)?;
        thread::sleep(unit() * STOPPED);
        drop(stop);
    }
    thread::sleep(unit() * CALL);
    Ok(())
}

/// Runs plugins one after the other, each for the time that a call takes.
fn calls(is_over: &AtomicBool) -> Result<()> {
    let runtime = Runtime::start()?;
    while !is_over.load(Ordering::Relaxed) {
        let add = Environment::of_add(&new_id()?);
        for environment in [add.clone(), add.with("CNI_COMMAND", "DEL")] {
            let mut command = runtime.command(&environment, &[], &["wait".to_owned()])?;
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
            thread::sleep(unit() * CALL);
            // The plugin waits for the end of its input.
            drop(child.stdin.take());
            let status = child.wait()?;
            ensure!(status.success(), "a plugin ended with {status}");
        }
    }
    Ok(())
}
