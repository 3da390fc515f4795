//! The disk of the VM: a small Debian with every container runtime side by side below /opt.
//!
//! Apart from the images, the disk has nothing of this repository: scripts and settings come with the
//! initramfs, so that a change of one needs no new disk.

use super::apt::Release;
use super::choice::Runtime;
use super::store::{self, Key};
use super::{image, say};
use crate::arch::Arch;
use crate::{root, workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SUITE: &str = "trixie";
/// The packages of tools that the node's runtime or our tests call, and busybox for the scripts. A change
/// here makes a new disk.
const PACKAGES: &str = "busybox-static,iproute2,iptables,kmod,libseccomp2,mount,procps,systemd,util-linux";
/// Files that a VM does not need; more than half of the packages' content.
const LEFT_OUT: [&str; 3] = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"];
/// Runs instead of the packages' own scripts, where this machine cannot run them.
const UNCONFIGURED: &str = include_str!("../../vm/unconfigured.sh");
/// The packages of each runtime; all three are from one release.
const RUNTIME_PACKAGES: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];
/// A sparse file: 2 GiB, of which a third is used.
const SIZE: u64 = 2 << 30;

/// Returns the disk image, as a file on this machine. Each VM writes to a layer of its own.
pub(super) fn get(arch: Arch) -> Result<PathBuf> {
    let images = image::get(arch)?;
    let key = LEFT_OUT
        .iter()
        .chain(&RUNTIME_PACKAGES)
        .fold(Key::new().with("rootfs 1"), |key, word| key.with(word));
    let key = Runtime::ALL.iter().fold(key, |key, runtime| key.with(runtime.name()).with(runtime.suite()));
    let mut key = key.with(PACKAGES).with_entry(&images);
    if !arch.is_ours() {
        key = key.with(UNCONFIGURED);
    }
    let dir = store::entry("rootfs", &arch.name_of(SUITE), &key, |dir| make(arch, &images, dir))?;
    Ok(dir.join("root.img"))
}

fn make(arch: Arch, images: &Path, dir: &Path) -> Result<()> {
    let tree = dir.join("tree");
    // An interrupted build leaves files that root owns.
    remove_as_root(&tree)?;
    let added = dir.join("added");
    if added.exists() {
        fs::remove_dir_all(&added).with_context(|| format!("cannot remove {}", added.display()))?;
    }
    for runtime in Runtime::ALL {
        say(format_args!("fetching {runtime} for {arch} of Debian {}", runtime.suite()));
        unpack(arch, runtime, &added.join("opt").join(runtime.name()))?;
    }
    let place = added.join("usr/local/share/vm");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    fs::copy(images, place.join("images.tar")).context("cannot copy the container images")?;
    let archive = dir.join("added.tar");
    pack(&added, &archive).with_context(|| format!("cannot write {}", archive.display()))?;

    root::authorize()?;
    say(format_args!("installing Debian {SUITE} for the VM's disk"));
    bootstrap(arch, &tree, &archive)?;
    let disk = dir.join("root.img");
    // The file is made here, so that we own it and not root.
    File::create(&disk)
        .and_then(|file| file.set_len(SIZE))
        .with_context(|| format!("cannot make {}", disk.display()))?;
    workspace::run(
        root::command(tool("mke2fs"))
            // No journal: a disk that is thrown away is never repaired.
            .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1", "-d"])
            .arg(&tree)
            .arg(&disk)
            .stdout(Stdio::null()),
    )?;
    remove_as_root(&tree)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))?;
    fs::remove_dir_all(&added).with_context(|| format!("cannot remove {}", added.display()))
}

fn unpack(arch: Arch, runtime: Runtime, into: &Path) -> Result<()> {
    let debian = Release::open(arch, runtime.suite())?;
    let version = debian.field("containerd", "Version")?.unwrap_or_default();
    ensure!(
        version.starts_with(runtime.prefix()),
        "Debian {} has no {runtime} any more: its containerd is {version:?}",
        runtime.suite()
    );
    debian.unpack(&RUNTIME_PACKAGES, into, wanted)
}

/// Returns the path of a program; `None` for other files: units and settings are the VM's own.
fn wanted(path: &str) -> Option<PathBuf> {
    let folders = ["usr/bin/", "usr/sbin/", "usr/lib/cni/"];
    let unused = ["usr/bin/containerd-stress", "usr/sbin/recvtty"];
    (folders.iter().any(|folder| path.starts_with(folder)) && !unused.contains(&path)).then(|| path.into())
}

/// Packs the tree. Root owns all files in the archive, whoever owns them here.
fn pack(tree: &Path, archive: &Path) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(File::create(archive)?);
    tar.mode(tar::HeaderMode::Deterministic);
    tar.append_dir_all(".", tree)?;
    tar.into_inner()?.sync_all()
}

fn bootstrap(arch: Arch, tree: &Path, added: &Path) -> Result<()> {
    let debian = Release::open(arch, SUITE)?;
    let log = tree.with_extension("log");
    let mut mmdebstrap = root::command("mmdebstrap");
    mmdebstrap.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    // The hook of the last stage that each variant has.
    let hook = if arch.is_ours() {
        mmdebstrap.args(["--variant=essential", "--dpkgopt=force-unsafe-io"]);
        "--customize-hook"
    } else {
        mmdebstrap.args(["--variant=extract", "--include=?essential", "--architectures", arch.short()]);
        mmdebstrap.arg(format!("--extract-hook={UNCONFIGURED}"));
        "--extract-hook"
    };
    mmdebstrap.arg(format!("--include={PACKAGES}"));
    // A real node has these two folders; our own scripts mount on the others.
    mmdebstrap.arg(format!(r#"{hook}=mkdir -p "$1/etc/containerd" "$1/etc/cni/net.d""#));
    mmdebstrap.arg(format!(r#"{hook}=tar --extract --file={} --directory="$1""#, quote(added)));
    mmdebstrap.arg(SUITE).arg(tree).arg(debian.sources_file());
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = mmdebstrap
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("cannot run mmdebstrap")?;
    ensure!(status.success(), "mmdebstrap ended with {status}; what it said is in {}", log.display());
    Ok(())
}

fn remove_as_root(tree: &Path) -> Result<()> {
    if !tree.exists() {
        return Ok(());
    }
    workspace::run(root::command("rm").args(["-rf", "--one-file-system"]).arg(tree))
}

/// Quotes a path for a hook, which a shell splits into words.
fn quote(path: &Path) -> String {
    super::quote(&path.to_string_lossy())
}

pub(super) fn tool(name: &str) -> PathBuf {
    workspace::which(name).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_are_kept() {
        assert!(wanted("usr/bin/containerd").is_some());
        assert!(wanted("usr/sbin/runc").is_some());
        assert!(wanted("usr/lib/cni/bridge").is_some());
        assert!(wanted("usr/bin/containerd-stress").is_none());
        assert!(wanted("lib/systemd/system/containerd.service").is_none());
    }
}
