//! Disks of this machine that fail on request: real devices of the kernel, with ext4 on them.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;
use tests::command;

/// Makes the kernel read everything from disks again.
pub(super) fn drop_caches() -> Result<()> {
    nix::unistd::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop the caches")
}

/// A mounted ext4. It is unmounted when this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts it. `options` include what the kernel does at an error.
    fn mount(device: &str, place: &Path, options: &str) -> Result<Self> {
        fs::create_dir_all(place)?;
        mount(Some(device), place, Some("ext4"), MsFlags::empty(), Some(options))
            .with_context(|| format!("mount {device}"))?;
        Ok(Self(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::empty()).or_else(|_busy| umount2(&self.0, MntFlags::MNT_DETACH));
    }
}

/// A disk in memory that accepts no writes for a while, like one whose path or server is gone for a moment.
/// Earlier data can be read.
pub(super) struct Pausing {
    number: String,
    mounted: Option<Mounted>,
}

impl Pausing {
    const CONTROL: &str = "/sys/class/zram-control";

    pub(super) fn mount(place: &Path) -> Result<Self> {
        if !Path::new(Self::CONTROL).exists() {
            command::run("modprobe", &["zram"])?;
        }
        let number = fs::read_to_string(format!("{}/hot_add", Self::CONTROL)).context("make a zram")?;
        let mut disk = Self { number: number.trim().to_owned(), mounted: None };
        disk.set("disksize", "64M")?;
        let device = format!("/dev/zram{}", disk.number);
        // With a journal, the kernel would allow no writes after the first failure.
        command::run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", &device])?;
        disk.mounted = Some(Mounted::mount(&device, place, "errors=continue")?);
        Ok(disk)
    }

    /// Makes each write fail from now on: the disk is above its size limit.
    pub(super) fn fail(&self) -> Result<()> {
        self.set("mem_limit", "4096")
    }

    pub(super) fn work(&self) -> Result<()> {
        self.set("mem_limit", "0")
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/sys/block/zram{}/{name}", self.number);
        fs::write(&path, value).with_context(|| format!("write {path}"))
    }
}

impl Drop for Pausing {
    fn drop(&mut self) {
        self.work().ok();
        self.mounted = None;
        fs::write(format!("{}/hot_remove", Self::CONTROL), &self.number).ok();
    }
}

/// A disk that dies: it can be neither read nor written, and the kernel makes its file system read-only.
pub(super) struct Dying {
    image: PathBuf,
    device: String,
    place: PathBuf,
    mounted: Option<Mounted>,
    folder: TempDir,
}

impl Dying {
    const SIZE: u64 = 32 << 20;

    pub(super) fn mount(place: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let image = folder.path().join("image");
        File::create(&image)?.set_len(Self::SIZE)?;
        let name = image.to_str().context("the path is no text")?;
        command::run("mke2fs", &["-q", "-F", "-t", "ext4", name])?;
        let device = command::output("losetup", &["--find", "--show", name])?.trim().to_owned();
        let mut disk = Self { image, device, place: place.to_owned(), mounted: None, folder };
        disk.mounted = Some(disk.mount_again()?);
        Ok(disk)
    }

    fn mount_again(&self) -> Result<Mounted> {
        Mounted::mount(&self.device, &self.place, "errors=remount-ro")
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    pub(super) fn die(&self) -> Result<()> {
        nix::unistd::sync();
        fs::copy(&self.image, self.kept())?;
        File::options().write(true).open(&self.image)?.set_len(512)?;
        self.resize()
    }

    /// Makes the disk work again, with the data from before its death.
    pub(super) fn repair(&mut self) -> Result<()> {
        self.mounted = None;
        fs::copy(self.kept(), &self.image)?;
        self.resize()?;
        let checked = std::process::Command::new("e2fsck").args(["-p", &self.device]).output()?;
        // Exit code 1: e2fsck has repaired something.
        ensure!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
        self.mounted = Some(self.mount_again()?);
        Ok(())
    }

    /// Resizes the device to the size of its file.
    fn resize(&self) -> Result<()> {
        command::run("losetup", &["--set-capacity", &self.device])
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        self.mounted = None;
        command::run("losetup", &["--detach", &self.device]).ok();
    }
}
