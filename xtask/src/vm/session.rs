//! A VM run: boots it, lets it run the command, and returns how that ended.

use super::choice::Kernel;
use super::guest::{Guest, Heard};
use super::port::Word;
use super::qemu::{self, Accel, Boot, Disk, Machine, Shares};
use super::{Request, accel, initramfs, kernel, rootfs, store};
use crate::arch::Arch;
use crate::bin_dir;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// The parts of every VM of a kernel, which are made if they do not exist.
pub(super) struct Parts {
    arch: Arch,
    pub(super) kernel: kernel::Files,
    pub(super) initramfs: PathBuf,
    pub(super) disk: PathBuf,
    pub(super) accel: Accel,
}

impl Parts {
    pub(super) fn boot<'a>(&'a self, choices: &'a str) -> Boot<'a> {
        Boot { arch: self.arch, kernel: &self.kernel.image, initramfs: &self.initramfs, choices }
    }

    pub(super) fn get(arch: Arch, kernel: Kernel) -> Result<Self> {
        let files = kernel::get(arch, kernel)?;
        let initramfs = initramfs::get(arch, kernel, &files)?;
        let disk = rootfs::get(arch)?;
        let accel = accel::get(&Boot { arch, kernel: &files.image, initramfs: &initramfs, choices: "" })?;
        Ok(Self { arch, kernel: files, initramfs, disk, accel })
    }
}

/// How a command in a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Status(u8),
    /// QEMU ended, and the guest had not reported why: most likely a panic.
    Died,
    TimedOut,
    /// The command wanted to boot again, and the request does not allow that.
    Rebooted,
}

/// A folder for one run, removed with it.
pub(super) struct Folder {
    path: PathBuf,
    /// The word that begins each message from the guest, which reads it in the file `environment`.
    pub(super) token: String,
}

impl Folder {
    /// Makes a folder with the name of this process, so that the folders of killed processes are known and
    /// removed.
    pub(super) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let all = store::root().join("run");
        remove_dead(&all);
        let path = all.join(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        // `nothing` is for a guest that has no folder of the host.
        for folder in ["shared", "nothing"] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        // The standard library has no other public source of random numbers.
        let token = format!("vm-{:016x}", RandomState::new().build_hasher().finish());
        Ok(Self { path, token })
    }

    /// Returns the folder that is the guest's /vm/run.
    pub(super) fn shared(&self) -> PathBuf {
        self.path.join("shared")
    }

    pub(super) fn nothing(&self) -> PathBuf {
        self.path.join("nothing")
    }

    pub(super) fn console(&self) -> PathBuf {
        self.path.join("console")
    }

    pub(super) fn monitor(&self) -> Result<PathBuf> {
        qemu::check_socket(self.path.join("qmp"))
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("qemu.log")
    }

    /// Writes a file that the guest reads.
    pub(super) fn give(&self, name: &str, text: &str) -> Result<()> {
        let path = self.shared().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the end of what the guest's kernel and QEMU printed, for a run that ended without a status.
    pub(super) fn last_words(&self) -> String {
        tail(&(read(&self.console()) + &read(&self.log())), 40)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed now, a later process removes it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Starts a guest: the part that a fresh VM and a saved one have in common.
pub(super) fn guest(
    request: &Request,
    parts: &Parts,
    folder: &Folder,
    choices: &str,
    disk: Disk<'_>,
    incoming: bool,
    deadline: Instant,
) -> Result<Guest> {
    let nothing = folder.nothing();
    let machine = Machine {
        accel: parts.accel,
        boot: parts.boot(choices),
        disk,
        shares: Shares {
            modules: &parts.kernel.all_modules(),
            bin: &bin_dir::path(request.arch)?,
            host: request.share.as_deref().unwrap_or(&nothing),
            run: &folder.shared(),
        },
        console: &folder.console(),
        monitor: &folder.monitor()?,
        incoming,
    };
    let log =
        File::create(folder.log()).with_context(|| format!("cannot write {}", folder.log().display()))?;
    Guest::start(machine.command(Stdio::from(log)), &folder.token, deadline)
}

/// Returns the options on the kernel command line that the guest's scripts read.
pub(super) fn choices(request: &Request) -> String {
    let mut words = format!(
        "vm_init={} vm_runtime={} vm_cgroup={}",
        request.init.name(),
        request.runtime.name(),
        request.cgroup.name()
    );
    if request.init == super::Init::Systemd {
        words.push_str(" systemd.unit=vm.target systemd.show_status=0");
        words.push_str(match request.cgroup {
            super::Cgroup::V2 => "",
            super::Cgroup::V1 => {
                " SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 systemd.unified_cgroup_hierarchy=0 \
                 systemd.legacy_systemd_cgroup_controller=1"
            }
            super::Cgroup::Hybrid => {
                " SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 systemd.unified_cgroup_hierarchy=0 \
                 systemd.legacy_systemd_cgroup_controller=0"
            }
        });
    }
    words
}

/// Returns the guest's file `environment`; `boot` counts from 1.
pub(super) fn environment(folder: &Folder, boot: u32, kept: bool) -> String {
    format!("token={}\nboot={boot}\nkept={}\n", folder.token, if kept { "1" } else { "" })
}

pub(super) fn run(
    request: &Request,
    parts: &Parts,
    folder: &Folder,
    deadline: Instant,
    output: &mut dyn FnMut(&[u8]),
) -> Result<End> {
    // A reboot needs a disk that outlives QEMU, even if the request has none.
    let scratch = folder.path.join("disk.img");
    let kept = request.disk.as_deref().or(request.reboot.then_some(scratch.as_path()));
    if let Some(disk) = kept.filter(|disk| !disk.exists()) {
        copy_disk(&parts.disk, disk)?;
        // A node's file system survives a power cut.
        add_journal(disk)?;
    }
    let disk = kept.map_or(Disk::ThrownAway(&parts.disk), Disk::Kept);
    for boot in 1.. {
        folder.give("environment", &environment(folder, boot, kept.is_some()))?;
        let mut guest = guest(request, parts, folder, &choices(request), disk, false, deadline)?;
        match guest.listen(&mut *output) {
            Heard::Word(Word::Status(status)) => {
                ensure!(
                    kept.is_none() || guest.finish(),
                    "the VM does not power off: its disk may not be whole"
                );
                return Ok(End::Status(status));
            }
            Heard::Word(Word::Reboot) if request.reboot => {
                if !guest.finish() {
                    return Ok(End::TimedOut);
                }
            }
            // What the guest has not written yet is lost.
            Heard::Word(Word::Cut) if request.reboot => drop(guest),
            Heard::Word(Word::Reboot | Word::Cut) => return Ok(End::Rebooted),
            Heard::Word(Word::Ready) => bail!("the guest wants to be saved, and was not asked to"),
            Heard::Ended => return Ok(End::Died),
            Heard::TimedOut => return Ok(End::TimedOut),
        }
    }
    Ok(End::Died)
}

/// Copies a disk; holes in the file stay holes.
pub(super) fn copy_disk(from: &Path, to: &Path) -> Result<()> {
    let part = to.with_extension("part");
    crate::workspace::run(
        Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(&part),
    )?;
    fs::rename(&part, to).with_context(|| format!("cannot make {}", to.display()))
}

/// Adds a journal. The shared disk has none, because only a VM's own disk is ever repaired.
fn add_journal(disk: &Path) -> Result<()> {
    crate::workspace::run(
        Command::new(rootfs::tool("tune2fs"))
            .args(["-O", "has_journal", "-J", "size=8"])
            .arg(disk)
            .stdout(Stdio::null()),
    )
}

/// Removes the folders of processes that have ended.
fn remove_dead(all: &Path) {
    let Ok(found) = fs::read_dir(all) else { return };
    for folder in found.flatten() {
        let name = folder.file_name();
        let Some((pid, _)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            // Another process may be removing it too.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// Returns what can be read of the file.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(tail("a\r\n\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
