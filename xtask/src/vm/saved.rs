//! A VM that is saved after a warm-up: booted, with containerd started and used once. Each run continues from
//! there within seconds.

use super::guest::Heard;
use super::monitor::Monitor;
use super::port::Word;
use super::qemu::{self, Disk};
use super::session::{self, End, Folder, Parts};
use super::store::{self, Key};
use super::{Request, say};
use crate::bin_dir;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The time to boot, start containerd and run a pod: ten times what emulation takes on an idle machine.
const TO_WARM: Duration = Duration::from_secs(400);
/// The warm-up before saving. The first pod costs most: its code is translated and its files are read.
const WARM: &str = "\
start-containerd $driver
if [ -x /vm/bin/cri ]; then
    CRI_CGROUP_DRIVER=$driver cri life warm 00000000-0000-0000-0000-000000000000
fi
";

pub(super) fn run(
    request: &Request,
    parts: &Parts,
    folder: &Folder,
    deadline: Instant,
    output: &mut dyn FnMut(&[u8]),
) -> Result<End> {
    let saved = get(request, parts)?;
    folder.give("environment", &session::environment(folder, 1, false))?;
    let disk = saved.join("disk.img");
    let disk = Disk::ThrownAway(&disk);
    let mut guest = session::guest(request, parts, folder, &session::choices(request), disk, true, deadline)?;
    restore(folder, &saved, deadline)
        .with_context(|| format!("cannot go on from {}: {}", saved.display(), folder.last_words()))?;
    guest.say(&now()?)?;
    Ok(match guest.listen(output) {
        Heard::Word(Word::Status(status)) => End::Status(status),
        Heard::Word(Word::Reboot | Word::Cut) => End::Rebooted,
        Heard::Word(Word::Ready) => bail!("the guest wants to be saved again"),
        Heard::Ended => End::Died,
        Heard::TimedOut => End::TimedOut,
    })
}

fn restore(folder: &Folder, saved: &Path, deadline: Instant) -> Result<()> {
    let mut monitor = monitor(folder, deadline)?;
    monitor.execute("migrate-incoming", &json!({ "uri": from(&saved.join("state")) }))?;
    monitor.migrated()?;
    monitor.execute("cont", &json!({})).map(drop)
}

/// Returns the folder of the saved VM, which is made if it does not exist.
pub(super) fn get(request: &Request, parts: &Parts) -> Result<PathBuf> {
    let name =
        format!("{}-{}-{}-{}", request.kernel, request.runtime, request.init.name(), request.cgroup.name());
    let client = bin_dir::path(request.arch)?.join("cri").exists();
    let key = Key::new()
        .with("saved 1")
        .with(WARM)
        .with_entry(&parts.disk)
        .with(format!("{:?}", qemu::bare(parts.accel, &parts.boot(&session::choices(request)))))
        .with(qemu::version(request.arch)?)
        .with(if client { "with a pod" } else { "without a pod" });
    store::entry("saved", &request.arch.name_of(&name), &key, |dir| save(request, parts, dir))
}

fn save(request: &Request, parts: &Parts, dir: &Path) -> Result<()> {
    say(format_args!("saving a warm VM of {} with {}", parts.kernel.release, request.runtime));
    let disk = dir.join("disk.img");
    session::copy_disk(&parts.disk, &disk)?;
    let folder = Folder::new()?;
    folder.give("environment", &session::environment(&folder, 1, false))?;
    folder.give("warm", &format!("set -e\ndriver={}\n{WARM}", request.init.driver()))?;
    let deadline = Instant::now() + TO_WARM;
    let choices = session::choices(request) + " vm_save=1";
    let mut guest = session::guest(request, parts, &folder, &choices, Disk::Kept(&disk), false, deadline)?;
    let mut said = Vec::new();
    let heard = guest.listen(|bytes| said.extend(bytes));
    ensure!(
        heard == Heard::Word(Word::Ready),
        "the VM to save is not warm ({heard:?}): {}\n{}",
        String::from_utf8_lossy(&said).trim(),
        folder.last_words()
    );
    let mut monitor = monitor(&folder, deadline)?;
    monitor.execute("stop", &json!({}))?;
    // QEMU's default limit is the speed of a network, far below that of a disk.
    monitor.execute("migrate-set-parameters", &json!({ "max-bandwidth": 100_u64 << 30 }))?;
    monitor.execute("migrate", &json!({ "uri": to(&dir.join("state")) }))?;
    monitor.migrated()?;
    // In about one of some hundred runs QEMU has ended by now. If the saved state is not whole, the VM that
    // starts from it fails.
    let _ = monitor.execute("quit", &json!({}));
    ensure!(guest.finish(), "QEMU does not end after the VM was saved");
    Ok(())
}

fn monitor(folder: &Folder, deadline: Instant) -> Result<Monitor> {
    let mut monitor = Monitor::connect(&folder.monitor()?, deadline)?;
    let events = json!({ "capabilities": [{ "capability": "events", "state": true }] });
    monitor.execute("migrate-set-capabilities", &events)?;
    Ok(monitor)
}

/// Returns where QEMU reads a saved state. Before 8.2 it cannot read and write such files itself.
fn from(state: &Path) -> String {
    format!("exec:cat {}", super::quote(&state.to_string_lossy()))
}

fn to(state: &Path) -> String {
    format!("exec:cat > {}", super::quote(&state.to_string_lossy()))
}

/// Returns the time, to which the guest sets its clock: the clock stopped while the guest was saved.
fn now() -> Result<String> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .context("this machine's clock is before 1970")?;
    Ok(format!("{}.{:09}", now.as_secs(), now.subsec_nanos()))
}
