//! Programs begin and end in a container. The tests check their reported events byte for byte.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    process::{self, Command},
};

use anyhow::{Context as _, Result, ensure};
use probe_common::event::{
    class::{CONTAINER_TOP, IN_CONTAINER},
    exec::{ARGV, FILENAME},
};
use probe_user::model::fact::{Executed, Exited, Fact, Observation};
use tests::{live::Shared, program};

use crate::container::{Container, actor, has_exited, of_process};

const TOP: u32 = CONTAINER_TOP | IN_CONTAINER;

#[test]
fn a_program_is_reported_with_its_arguments_and_its_status() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let words = [&*actor()?, "exit", "3", "", "a b", "é"];
    let mut child = container.command(&words)?.spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.code() == Some(3));
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let key = container.cgroup().id();
    let seen = live.settled()?;

    let (executed, exited) = run_of(&seen, pid)?;
    ensure!(executed.filename == words[0] && executed.argv == words, "{executed:?}");
    let total: usize = words.iter().map(|word| word.len() + 1).sum();
    ensure!(executed.argv_total as usize == total, "{executed:?}");
    ensure!(executed.class == TOP && exited.class == TOP, "{executed:?} {exited:?}");
    let task = &executed.task;
    ensure!((task.tid, task.parent.pid, &*task.comm) == (pid, process::id(), "actor"), "{task:?}");
    ensure!((task.cgroup.hierarchy, task.cgroup.id) == (key.hierarchy, key.id), "{task:?}");
    let namespaces = ["net", "pid", "mnt"]
        .map(|kind| fs::metadata(format!("/proc/self/ns/{kind}")).map(|link| link.ino()));
    let reported = [task.netns, executed.pid_ns, executed.mnt_ns];
    for (inode, reported) in namespaces.into_iter().zip(reported) {
        ensure!(inode? == u64::from(reported), "{executed:?}");
    }
    ensure!(executed.ns_pid == pid && exited.status == 3 << 8, "{executed:?} {exited:?}");
    ensure!(exited.task.key == task.key && task.key.start > 0, "{exited:?}");
    Ok(())
}

#[test]
fn a_container_is_known_by_a_slice_in_its_cgroup_s_name_too() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create_with_slice(live.hierarchy())?;
    // A colon separates directories in the argument of `enter`. This directory has colons in its name, so a
    // link stands for it.
    let folder = tempfile::tempdir()?;
    let link = folder.path().join("cgroup");
    symlink(container.cgroup().directory(), &link)?;
    let actor = actor()?;
    let mut child = Command::new(&actor).arg("enter").arg(&link).args([&*actor, "exit", "3"]).spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.code() == Some(3));
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let seen = live.settled()?;
    let (executed, exited) = run_of(&seen, pid)?;
    ensure!(executed.class == TOP && exited.class == TOP, "{executed:?} {exited:?}");
    Ok(())
}

#[test]
fn long_names_and_arguments_are_cut_and_their_length_is_counted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let deep = folder.path().join("d".repeat(200)).join("e".repeat(100));
    fs::create_dir_all(&deep)?;
    let path = program::alias("actor", &deep, "long")?;
    let path = path.to_str().context("the path is not UTF-8")?;
    let long = "x".repeat(5000);
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let words = [path, "exit", "0", &long, "unseen"];
    let mut child = container.command(&words)?.spawn()?;
    let pid = child.id();
    child.wait()?;
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let seen = live.settled()?;

    let (executed, _) = run_of(&seen, pid)?;
    ensure!(executed.filename == path[..FILENAME - 1], "{executed:?}");
    let whole = words.map(|word| format!("{word}\0")).concat();
    ensure!(executed.argv_total as usize == whole.len(), "{executed:?}");
    ensure!(executed.argv.join("\0") == whole[..ARGV], "{executed:?}");
    Ok(())
}

#[test]
fn a_process_ends_with_its_last_thread() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let mut child = container.command(&[&actor()?, "leave-a-thread", "5"])?.spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.code() == Some(5));
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let seen = live.settled()?;
    let (executed, exited) = run_of(&seen, pid)?;
    ensure!(exited.task.key == executed.task.key && exited.task.tid != pid, "{exited:?}");
    ensure!(exited.status == 5 << 8, "{exited:?}");
    Ok(())
}

#[test]
fn a_thread_that_executes_becomes_the_process() -> Result<()> {
    let mut live = Shared::start()?;
    let container = Container::create(live.hierarchy())?;
    let actor = actor()?;
    let mut child = container.command(&[&actor, "exec-in-a-thread", &actor, "exit", "4"])?.spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.code() == Some(4));
    live.until("the exit", |seen| has_exited(seen, pid))?;
    let seen = live.settled()?;
    let facts = of_process(&seen, pid);
    let [Fact::Executed(first), Fact::Executed(second), Fact::Exited(exited)] = facts_of(&facts)[..] else {
        anyhow::bail!("{facts:#?}");
    };
    ensure!(first.task.key == second.task.key && second.task.tid == pid, "{facts:#?}");
    ensure!(second.argv == [&actor, "exit", "4"] && second.class == TOP, "{facts:#?}");
    ensure!(exited.status == 4 << 8 && exited.task.key == first.task.key, "{facts:#?}");
    Ok(())
}

fn facts_of<'a>(seen: &[&'a Observation]) -> Vec<&'a Fact> {
    seen.iter().map(|one| &one.fact).collect()
}

/// Returns the exec and exit of a process that executed one program and ended, without any other observation.
fn run_of(seen: &[Observation], pid: u32) -> Result<(&Executed, &Exited)> {
    let facts = of_process(seen, pid);
    match facts_of(&facts)[..] {
        [Fact::Executed(executed), Fact::Exited(exited)] => Ok((executed, exited)),
        _ => anyhow::bail!("{facts:#?}"),
    }
}
