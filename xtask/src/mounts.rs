//! The hidden verb `in-mounts`: runs a command with tracefs and bpffs mounted, without mounting them on this
//! machine.
//!
//! Invariant: the host's mount tree is never changed. If both are mounted already, the command runs directly.

use crate::root;
use anyhow::{Context as _, Result, ensure};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::os::fd::IntoRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const MOUNTS: [(&str, &str); 2] = [("tracefs", "/sys/kernel/tracing"), ("bpf", "/sys/fs/bpf")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Set NAME=VALUE for the command (sudo passes no environment on)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Append --host-root DIR to the command if it would not see the host's later mounts without
    #[arg(long)]
    host_root: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns the command of this program as root, up to `in-mounts --`; the caller adds the command of an
/// agent, which sees the host's mounts, also later ones.
pub(crate) fn agent() -> Result<Command> {
    let mut command = in_mounts()?;
    command.args(["--host-root", "--"]);
    Ok(command)
}

/// Returns this program's command as root up to `in-mounts --`, with these variables for the command to add.
pub(crate) fn command<'a>(variables: impl IntoIterator<Item = &'a (&'a str, String)>) -> Result<Command> {
    let mut command = in_mounts()?;
    for (name, value) in variables {
        command.arg(format!("--env={name}={value}"));
    }
    command.arg("--");
    Ok(command)
}

fn in_mounts() -> Result<Command> {
    let mut command = root::command(env::current_exe().context("cannot tell where xtask itself is")?);
    command.arg("in-mounts");
    Ok(command)
}

/// Returns only if the command could not be started, because it replaces this process.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(root::is_root(), "in-mounts needs root");
    let (program, rest) = args.command.split_first().context("no command given")?;

    let missing = missing()?;
    // Before this process leaves the host's namespace.
    let host_root = if args.host_root && !missing.is_empty() { host_root()? } else { None };
    if !missing.is_empty() {
        unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the host's mount namespace")?;
        // Slave, not private: a netns that a runtime binds below /run/netns from now on must show up here
        // too.
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
            .context("cannot cut our mounts off from the host's")?;
    }
    for (kind, at) in missing {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some(kind), at, Some(kind), flags, None::<&str>)
            .with_context(|| format!("cannot mount {kind} at {at}: does this kernel have it?"))?;
    }

    let mut command = Command::new(program);
    command.args(rest);
    if let Some(root) = host_root {
        command.args(["--host-root", &root]);
    }
    for variable in &args.env {
        let (name, value) = variable.split_once('=').context("--env wants NAME=VALUE")?;
        command.env(name, value);
    }
    Err(command.exec()).with_context(|| format!("cannot start {}", program.display()))
}

/// Returns a path to the host's files for a command in another mount namespace, if `/` does not show them.
///
/// Later mounts on the host reach that namespace only if the host's tree is shared, as systemd makes it. If
/// it is private, a folder that was opened before still leads through the host's own tree, so this leaves one
/// open for the command.
fn host_root() -> Result<Option<String>> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    if is_shared(&mountinfo, Path::new("/run/netns")) {
        return Ok(None);
    }
    let root = open("/", OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).context("cannot open /")?;
    Ok(Some(format!("/proc/self/fd/{}", root.into_raw_fd())))
}

fn missing() -> Result<Vec<(&'static str, &'static str)>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(MOUNTS.into_iter().filter(|&(kind, at)| !is_mounted(&mounts, kind, at)).collect())
}

fn is_mounted(mounts: &str, kind: &str, at: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(at) && fields.next() == Some(kind)
    })
}

/// Whether mounts at this path propagate to other namespaces. This depends on the mount that contains the
/// path.
fn is_shared(mountinfo: &str, path: &Path) -> bool {
    let holder = mountinfo
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            let at = Path::new(fields.next()?);
            let mut tags = fields.skip(1).take_while(|&field| field != "-");
            path.starts_with(at).then(|| (at.as_os_str().len(), tags.any(|tag| tag.starts_with("shared:"))))
        })
        // The last mount on a place is on top; max_by_key returns the last.
        .max_by_key(|&(depth, _)| depth);
    holder.is_some_and(|(_, shared)| shared)
}

#[cfg(test)]
mod tests {
    use super::{is_mounted, is_shared};
    use std::path::Path;

    #[test]
    fn a_mount_is_known_by_its_place_and_kind() {
        let mounts = "proc /proc proc rw 0 0\ntracefs /sys/kernel/tracing tracefs rw,nosuid 0 0\n";
        assert!(is_mounted(mounts, "tracefs", "/sys/kernel/tracing"));
        assert!(!is_mounted(mounts, "bpf", "/sys/fs/bpf"));
        assert!(!is_mounted(mounts, "bpf", "/sys/kernel/tracing"));
    }

    #[test]
    fn propagation_is_that_of_the_deepest_mount() {
        let mountinfo = "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                         22 21 0:5 / /run rw,nosuid - tmpfs tmpfs rw\n\
                         23 21 0:6 / /runner rw shared:2 master:1 - tmpfs tmpfs rw\n";
        assert!(is_shared(mountinfo, Path::new("/var/run")));
        assert!(!is_shared(mountinfo, Path::new("/run/netns")));
        assert!(is_shared(mountinfo, Path::new("/runner/netns")));
        assert!(!is_shared("", Path::new("/")));
    }
}
