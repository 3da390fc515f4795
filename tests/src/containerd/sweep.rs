//! Removes everything that one containerd left on the machine, by its name. This is the same after a normal
//! end and after a kill.
//!
//! Invariant: it touches only things with the run's own name or in its own directories.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Place, before::Before, pods, residue};
use crate::{clock, command};

/// A function that removes one kind of thing.
type Step = fn(&Place) -> Result<()>;

/// Removes everything. Returns a line for each thing that could not be removed.
pub(super) fn sweep(place: &Place) -> Vec<String> {
    const BEFORE_PODS: [(&str, Step); 3] =
        [("containers", remove_containers), ("processes", kill_processes), ("mounts", unmount)];
    const AFTER_PODS: [(&str, Step); 5] = [
        ("pod networks", residue::remove_pods),
        ("iptables rules", residue::remove_rules),
        ("bridge", residue::remove_bridge),
        ("machine's state before the run", restore),
        ("own directories", remove_directories),
    ];
    // Tries each step, whatever the result of the steps before.
    let problem = |(what, step): (&str, Step)| step(place).err().map(|error| format!("{what}: {error:#}"));
    let mut problems: Vec<_> = BEFORE_PODS.into_iter().filter_map(problem).collect();
    problems.extend(pods::remove(place));
    problems.extend(AFTER_PODS.into_iter().filter_map(problem));
    problems
}

/// Ends the containers and the runtime, and removes these directories of the runtime's data. Everything else
/// of the pods stays, and the runtime no longer knows of it.
pub(crate) fn forget(place: &Place, known: &[PathBuf]) -> Result<()> {
    remove_containers(place)?;
    kill_processes(place)?;
    unmount(place)?;
    for directory in known {
        fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    Ok(())
}

/// Makes runc kill and forget the containers in its root. That removes the containers' cgroups too.
fn remove_containers(place: &Place) -> Result<()> {
    let root = place.runc_root().join("k8s.io");
    for container in names(&root)? {
        command::run("runc", &["--root", &root.to_string_lossy(), "delete", "--force", &container])?;
    }
    Ok(())
}

/// Kills containerd, if it still runs, and its shims.
fn kill_processes(place: &Place) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(10);
    let processes = || -> Result<Vec<i32>> {
        let pids = names(Path::new("/proc"))?.into_iter().filter_map(|name| name.parse().ok());
        Ok(pids.filter(|pid| is_runtime_of(*pid, place)).collect())
    };
    for pid in processes()? {
        match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("kill process {pid}")),
        }
    }
    // A process that is ending may still hold a mount.
    clock::poll("end of containerd and its shims", LIMIT, || Ok(processes()?.is_empty().then_some(())))
}

/// Whether this is a containerd or a shim with one of the run's files among its arguments.
fn is_runtime_of(pid: i32, place: &Place) -> bool {
    let Ok(arguments) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut arguments = arguments.split(|byte| *byte == 0).map(|bytes| Path::new(OsStr::from_bytes(bytes)));
    let program = arguments.next().and_then(Path::file_name);
    let is_runtime = program.is_some_and(|name| name == "containerd" || name == "containerd-shim-runc-v2");
    is_runtime && arguments.any(|argument| argument == place.socket() || argument == place.configuration())
}

/// Unmounts the root file systems and shared memory of containers, the deepest first.
fn unmount(place: &Place) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let mut ours: Vec<_> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .filter(|mount| mount.starts_with(&place.state) || mount.starts_with(&place.root))
        .collect();
    ours.sort();
    for mount in ours.iter().rev() {
        umount2(mount, MntFlags::MNT_DETACH).with_context(|| format!("unmount {}", mount.display()))?;
    }
    Ok(())
}

fn restore(place: &Place) -> Result<()> {
    // Absent if the start failed before anything was changed.
    if place.before().exists() { Before::load(&place.before())?.restore() } else { Ok(()) }
}

fn remove_directories(place: &Place) -> Result<()> {
    ensure!(names(&place.pods())?.is_empty(), "pods are left, and the next run tries again");
    // The state comes last. While its lock file exists, the next run tries a failed sweep again.
    for directory in [&place.root, &place.state] {
        match fs::remove_dir_all(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("remove {}", directory.display())),
        }
        // The directory of all runs cannot be removed while there is another run.
        if let Some(parent) = directory.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
    Ok(())
}

/// Returns the names in a directory. Empty if the directory does not exist.
pub(super) fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("list {}", directory.display())),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
