//! The cause of a container process's end: a signal from outside, the cgroup's kill file, or the OOM killer.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{self, Child},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use probe_user::model::fact::{Exited, Fact, Observation, Signaled};
use tests::{
    cgroupfs::{self, Hierarchy},
    guard::cgroup::CgroupGuard,
    live::{Live, Shared},
};

use crate::container::{Container, actor, has_exited, of_process};

const SIGKILL: u32 = 9;
/// `SI_USER`: sent by `kill(2)`.
const BY_KILL: i32 = 0;

#[test]
fn a_signal_is_reported_with_its_sender() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let child = container.idle()?;
    let pid = child.id();
    signal::kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
    let seen = until_killed(&mut live, child)?;
    let (signaled, exited) = end_of(&seen, pid)?;
    ensure!((signaled.signal, signaled.code) == (SIGKILL, BY_KILL), "{signaled:?}");
    is_from_us(signaled)?;
    ensure!(exited.status == SIGKILL && exited.task.key == signaled.target.key, "{exited:?}");
    Ok(())
}

#[test]
fn the_writer_of_cgroup_kill_is_the_sender() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let file = container.cgroup().directory().join("cgroup.kill");
    if !file.exists() {
        // The file does not exist with cgroup v1, nor before kernel 5.14.
        return Ok(());
    }
    let child = container.idle()?;
    let pid = child.id();
    fs::write(file, "1")?;
    let seen = until_killed(&mut live, child)?;
    let (signaled, exited) = end_of(&seen, pid)?;
    ensure!(signaled.signal == SIGKILL, "{signaled:?}");
    is_from_us(signaled)?;
    ensure!(exited.status == SIGKILL, "{exited:?}");
    Ok(())
}

#[test]
fn the_victim_of_a_memory_limit_is_reported() -> Result<()> {
    let mut live = Shared::start()?;
    let memory = memory_hierarchy()?;
    let limited = CgroupGuard::create(&memory)?;
    limit_memory(&limited)?;
    let (container, elsewhere) = if live.hierarchy().id == memory.id {
        (Container::create_below(live.hierarchy(), limited.path())?, Vec::new())
    } else {
        (Container::create(live.hierarchy())?, vec![limited.directory().to_owned()])
    };
    let mut command = container.command_also_in(&elsewhere, &[&actor()?, "eat"])?;
    let mut child = command.spawn()?;
    let pid = child.id();
    let status = child.wait()?;
    ensure!(status.signal() == Some(9), "{status}");
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let seen = live.settled()?;
    drop(container);
    limited.end()?;

    let facts = of_process(&seen, pid);
    let victims: Vec<_> = facts.iter().filter(|one| matches!(one.fact, Fact::OomKilled(_))).collect();
    ensure!(victims.len() == 1, "{facts:#?}");
    let Some(Fact::Exited(exited)) = facts.last().map(|one| &one.fact) else { bail!("{facts:#?}") };
    ensure!(exited.status == SIGKILL, "{facts:#?}");
    Ok(())
}

/// Returns the hierarchy with the memory controller: a v1 hierarchy of its own, or else v2.
fn memory_hierarchy() -> Result<Hierarchy> {
    let all = cgroupfs::hierarchies()?;
    let v1 = all.iter().find(|one| one.controllers.split(',').any(|name| name == "memory"));
    let found =
        v1.or_else(|| all.iter().find(|one| one.id == 0)).context("no cgroup hierarchy counts memory")?;
    if found.id == 0 {
        fs::write(found.mount.join("cgroup.subtree_control"), "+memory")
            .context("enable the memory controller")?;
    }
    Ok(found.clone())
}

fn limit_memory(cgroup: &CgroupGuard) -> Result<()> {
    const LIMIT: &str = "16777216";
    let write = |name: &str, text: &str| fs::write(cgroup.directory().join(name), text);
    if write("memory.max", LIMIT).is_ok() {
        // Without swap this file does not exist, and there is nothing to forbid.
        let _ = write("memory.swap.max", "0");
        return Ok(());
    }
    write("memory.limit_in_bytes", LIMIT).context("limit the memory of a cgroup")
}

fn is_from_us(signaled: &Signaled) -> Result<()> {
    let comm = fs::read_to_string(format!("/proc/{}/comm", process::id()))?;
    let sender = &signaled.sender;
    ensure!(sender.key.pid == process::id() && sender.comm == comm.trim_end(), "{signaled:?}");
    Ok(())
}

/// Waits until the exit of a killed process is reported.
fn until_killed(live: &mut Live, mut child: Child) -> Result<Vec<Observation>> {
    let status = child.wait()?;
    ensure!(status.signal() == Some(9), "{status}");
    live.until("the exit", |seen| has_exited(seen, child.id()))?;
    live.settled()
}

/// Returns the signal and the exit of a process that executed one program, got one signal and ended.
fn end_of(seen: &[Observation], pid: u32) -> Result<(&Signaled, &Exited)> {
    let facts = of_process(seen, pid);
    match facts.iter().map(|one| &one.fact).collect::<Vec<_>>()[..] {
        [Fact::Executed(_), Fact::Signaled(signaled), Fact::Exited(exited)] => Ok((signaled, exited)),
        _ => bail!("{facts:#?}"),
    }
}
