//! The initramfs: the modules for the disk and the host's folders, and all scripts and settings of the VM.

use super::choice::Kernel;
use super::cpio::Archive;
use super::kernel::Files;
use super::store::{self, Key};
use super::{busybox, say};
use crate::arch::Arch;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("../../vm/initramfs.sh");
/// The names of busybox in that script.
const APPLETS: &[&str] =
    &["cp", "insmod", "ln", "mkdir", "mount", "poweroff", "rm", "sh", "sleep", "switch_root"];
/// The modules for the disk, its file system, the host's folders and the port. Some kernels have some of them
/// built in.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4", "9p", "9pnet_virtio", "virtio_console"];
/// The module that ext4 loads by name, if it is not built in.
const OPTIONAL_MODULES: &[&str] = &["crc32c_generic"];
/// Files that are written to the disk at each boot: path, mode, content.
const FILES: &[(&str, u32, &str)] = &[
    ("usr/local/lib/vm/quick-init", 0o755, include_str!("../../vm/quick-init.sh")),
    ("usr/local/lib/vm/session", 0o755, include_str!("../../vm/session.sh")),
    ("usr/local/sbin/start-containerd", 0o755, include_str!("../../vm/start-containerd.sh")),
    ("usr/local/sbin/vm-reboot", 0o755, include_str!("../../vm/vm-reboot.sh")),
    ("usr/local/sbin/vm-cut", 0o755, include_str!("../../vm/vm-cut.sh")),
    ("etc/containerd/config-v2.toml", 0o644, include_str!("../../vm/containerd-v2.toml")),
    ("etc/containerd/config-v3.toml", 0o644, include_str!("../../vm/containerd-v3.toml")),
    ("etc/cni/net.d/10-bridge.conflist", 0o644, include_str!("../../vm/bridge.conflist")),
    ("etc/systemd/system/containerd.service", 0o644, include_str!("../../vm/containerd.service")),
    ("etc/systemd/system/session.service", 0o644, include_str!("../../vm/session.service")),
    ("etc/systemd/system/vm.target", 0o644, include_str!("../../vm/vm.target")),
    // It must not change from boot to boot, or systemd would take each boot for the first one.
    ("etc/machine-id", 0o444, "0123456789abcdef0123456789abcdef\n"),
    ("etc/hostname", 0o644, "vm\n"),
];

/// Returns the archive for this kernel, as a file on this machine.
pub(super) fn get(arch: Arch, kernel: Kernel, files: &Files) -> Result<PathBuf> {
    let busybox = busybox::get(arch)?;
    let mut key = Key::new().with("initramfs 1").with(INIT).with_entry(&busybox);
    key = key.with_entry(&files.dir);
    key = APPLETS.iter().chain(MODULES).chain(OPTIONAL_MODULES).fold(key, |key, word| key.with(word));
    key =
        FILES.iter().fold(key, |key, (path, mode, text)| key.with(path).with(mode.to_le_bytes()).with(text));
    let dir = store::entry("initramfs", &arch.name_of(kernel.name()), &key, |dir| {
        say(format_args!("making the initramfs of {}", files.release));
        let path = dir.join("initramfs.cpio");
        let archive = archive(files, &busybox)?;
        fs::write(&path, archive).with_context(|| format!("cannot write {}", path.display()))
    })?;
    Ok(dir.join("initramfs.cpio"))
}

fn archive(files: &Files, busybox: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for dir in ["bin", "dev", "files", "module", "proc", "root", "sys"] {
        archive.directory(dir);
    }
    archive.file("bin/busybox", 0o755, &read(busybox)?);
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    archive.file("init", 0o755, INIT.as_bytes());

    let tree = files.modules();
    let mut loaded = String::new();
    for path in
        load_order(&read_text(&tree.join("modules.dep"))?, &read_text(&tree.join("modules.builtin"))?)?
    {
        let name = format!("{}.ko", module_name(&path));
        archive.file(&format!("module/{name}"), 0o644, &module(&tree.join(&path))?);
        loaded.push_str(&name);
        loaded.push('\n');
    }
    archive.file("module/order", 0o644, loaded.as_bytes());

    for folder in folders(FILES.iter().map(|(path, _, _)| *path)) {
        archive.directory(&format!("files/{folder}"));
    }
    for (path, mode, text) in FILES {
        archive.file(&format!("files/{path}"), *mode, text.as_bytes());
    }
    Ok(archive.finish())
}

/// Returns the uncompressed bytes of a module, because busybox's insmod cannot decompress.
fn module(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return read(path),
    };
    let out =
        Command::new(tool).arg("-dc").arg(path).output().with_context(|| format!("cannot run {tool}"))?;
    if !out.status.success() {
        bail!("{tool} cannot decompress {}: {}", path.display(), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(out.stdout)
}

/// Returns the paths of the modules to load, each after its dependencies.
fn load_order(dep: &str, builtin: &str) -> Result<Vec<String>> {
    let needs: BTreeMap<&str, Vec<&str>> = dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needed)| (path, needed.split_whitespace().collect()))
        .collect();
    let by_name: BTreeMap<String, &str> = needs.keys().map(|path| (module_name(path), *path)).collect();

    let mut order: Vec<String> = Vec::new();
    for name in OPTIONAL_MODULES.iter().chain(MODULES) {
        let Some(path) = by_name.get(*name) else {
            if MODULES.contains(name) && !builtin.lines().any(|path| module_name(path) == *name) {
                bail!("this kernel has no module {name}, without which no VM reaches its disk");
            }
            continue;
        };
        // depmod lists what a module needs with the deepest last.
        for path in needs.get(path).into_iter().flatten().rev().chain([path]) {
            if !order.iter().any(|known| known == path) {
                order.push((*path).to_owned());
            }
        }
    }
    Ok(order)
}

/// Returns the kernel's name of a module file: without folder and ending, with underscores.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// Returns every folder of these paths, parents first.
fn folders<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let all = paths.flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]));
    let mut folders: Vec<&str> = all.collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/mbcache.ko.xz:
kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz
kernel/lib/crc16.ko.xz:
kernel/crypto/crc32c_generic.ko.xz:
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz:
kernel/fs/netfs/netfs.ko.xz:
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz
kernel/drivers/char/virtio_console.ko.xz:
";
    const BUILTIN: &str = "kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/block/virtio_blk.ko\n";

    #[test]
    fn each_module_after_what_it_needs() {
        let order = load_order(DEP, BUILTIN).unwrap();
        let place = |name: &str| order.iter().position(|path| module_name(path) == name).unwrap();
        assert_eq!(place("crc32c_generic"), 0);
        assert!(place("jbd2") < place("ext4"));
        assert!(place("crc16") < place("ext4"));
        assert!(place("9pnet") < place("9pnet_virtio"));
        assert_eq!(order.iter().filter(|path| module_name(path) == "9pnet").count(), 1);
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        let error = load_order(DEP, "").unwrap_err().to_string();
        assert!(error.contains("virtio_pci"), "{error}");
    }

    #[test]
    fn names_of_modules() {
        assert_eq!(module_name("kernel/fs/9p/9p.ko"), "9p");
        assert_eq!(module_name("kernel/x/virtio-rng.ko.xz"), "virtio_rng");
    }

    #[test]
    fn parents_first() {
        assert_eq!(folders(["a/b/c", "a/d", "e"].into_iter()), ["a", "a/b"]);
    }
}
