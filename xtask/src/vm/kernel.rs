//! A Debian kernel and the modules that a container node or its VM needs.

use super::apt::Release;
use super::choice::Kernel;
use super::store::{self, Key};
use crate::arch::Arch;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders and files of a module tree that are kept. The rest are drivers of hardware that no VM has. A
/// change here makes every kernel anew.
const KEPT: &[&str] = &[
    "modules.builtin",
    "modules.order",
    "kernel/arch/x86/crypto/",
    "kernel/crypto/",
    "kernel/drivers/block/virtio_blk.",
    "kernel/drivers/char/virtio_console.",
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/dummy.",
    "kernel/drivers/net/geneve.",
    "kernel/drivers/net/ifb.",
    "kernel/drivers/net/ipvlan/",
    "kernel/drivers/net/macvlan.",
    "kernel/drivers/net/netkit.",
    "kernel/drivers/net/tun.",
    "kernel/drivers/net/veth.",
    "kernel/drivers/net/vrf.",
    "kernel/drivers/net/vxlan",
    "kernel/drivers/net/wireguard/",
    "kernel/drivers/virtio/",
    "kernel/fs/9p/",
    "kernel/fs/binfmt_misc.",
    "kernel/fs/ext4/",
    "kernel/fs/fscache/",
    "kernel/fs/fuse/",
    "kernel/fs/jbd2/",
    "kernel/fs/mbcache.",
    "kernel/fs/netfs/",
    "kernel/fs/overlayfs/",
    "kernel/lib/",
    "kernel/net/",
];

/// An unpacked kernel.
pub(super) struct Files {
    pub(super) dir: PathBuf,
    pub(super) image: PathBuf,
    /// What `uname -r` prints in the VM.
    pub(super) release: String,
}

impl Files {
    /// Returns the folder that is the guest's /lib/modules.
    pub(super) fn all_modules(&self) -> PathBuf {
        self.dir.join("lib/modules")
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.all_modules().join(&self.release)
    }
}

pub(super) fn get(arch: Arch, kernel: Kernel) -> Result<Files> {
    let key = KEPT.iter().fold(Key::new().with("kernel 2"), |key, kept| key.with(kept));
    let dir = store::entry("kernel", &arch.name_of(kernel.name()), &key, |dir| make(arch, kernel, dir))?;
    let path = dir.join("release");
    let release = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Files { image: dir.join("vmlinuz"), dir, release })
}

fn make(arch: Arch, kernel: Kernel, dir: &Path) -> Result<()> {
    super::say(format_args!("fetching kernel {kernel} for {arch} of Debian {}", kernel.suite()));
    let debian = Release::open(arch, kernel.suite())?;
    let image = current(&debian, arch, kernel)?;
    let depends = debian.field(&image, "Depends")?.unwrap_or_default();
    let packages = parts(&image, &depends);
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    debian.unpack(&packages, dir, wanted)?;
    let release = image.trim_start_matches("linux-image-");
    ensure!(dir.join("vmlinuz").is_file(), "the packages {} hold no kernel image", packages.join(" "));
    // Debian's packages have no modules.dep: it is made where they are installed.
    workspace::run(Command::new(tool("depmod")).arg("-b").arg(dir).arg(release))?;
    fs::write(dir.join("release"), release).context("cannot write the kernel's release")
}

/// Returns the package that the release's metapackage depends on.
fn current(debian: &Release, arch: Arch, kernel: Kernel) -> Result<String> {
    let package = format!("linux-image-{}", arch.short());
    let depends = debian.field(&package, "Depends")?.unwrap_or_default();
    let image = image_of(&depends)
        .with_context(|| format!("Debian {} has no package {package} (any more)", kernel.suite()))?;
    ensure!(
        image.trim_start_matches("linux-image-").starts_with(kernel.prefix()),
        "Debian {} has no kernel {kernel} any more: its {package} is {image}",
        kernel.suite()
    );
    Ok(image.to_owned())
}

/// Returns the image among the dependencies of a metapackage.
fn image_of(depends: &str) -> Option<&str> {
    names(depends).find(|name| name.starts_with("linux-image-"))
}

/// Returns the packages that have the image's files: itself, and since 7.x three of its dependencies.
fn parts(image: &str, depends: &str) -> Vec<String> {
    let release = image.trim_start_matches("linux-image-");
    let apart = ["linux-base-", "linux-binary-", "linux-modules-"].map(|prefix| format!("{prefix}{release}"));
    let apart = apart.into_iter().filter(|name| names(depends).any(|depended| depended == name));
    std::iter::once(image.to_owned()).chain(apart).collect()
}

/// Returns the first alternative of each dependency, without its version.
fn names(depends: &str) -> impl Iterator<Item = &str> {
    depends.split(',').filter_map(|one| one.split_whitespace().next())
}

/// Returns where a file of a kernel package is put. Some releases have `lib`, some `usr/lib`, and 7.x has no
/// `boot`.
fn wanted(path: &str) -> Option<PathBuf> {
    if path.starts_with("boot/vmlinuz-") {
        return Some("vmlinuz".into());
    }
    let path = path.strip_prefix("usr/").unwrap_or(path);
    let (_release, file) = path.strip_prefix("lib/modules/")?.split_once('/')?;
    if file == "vmlinuz" {
        return Some("vmlinuz".into());
    }
    KEPT.iter().any(|kept| file.starts_with(kept)).then(|| path.into())
}

fn tool(name: &str) -> PathBuf {
    workspace::which(name).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool";
    const NEW: &str = "dracut | initramfs-tools, linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), \
         linux-binary-7.2.13+deb14-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)";

    #[test]
    fn the_metapackage_names_the_image() {
        assert_eq!(
            image_of("linux-image-5.10.0-46-amd64 (= 5.10.262-1)"),
            Some("linux-image-5.10.0-46-amd64")
        );
        let sid = "linux-base-amd64 (= 7.2.13-1), linux-image-7.2.13+deb14-amd64 (= 7.2.13-1)";
        assert_eq!(image_of(sid), Some("linux-image-7.2.13+deb14-amd64"));
        assert_eq!(image_of(""), None);
    }

    #[test]
    fn newer_kernels_come_in_parts() {
        assert_eq!(parts("linux-image-6.1.0-56-amd64", OLD), ["linux-image-6.1.0-56-amd64"]);
        assert_eq!(
            parts("linux-image-7.2.13+deb14-amd64", NEW),
            [
                "linux-image-7.2.13+deb14-amd64",
                "linux-base-7.2.13+deb14-amd64",
                "linux-binary-7.2.13+deb14-amd64",
                "linux-modules-7.2.13+deb14-amd64"
            ]
        );
    }

    #[test]
    fn only_what_a_node_needs_is_kept() {
        let to = |path: &str| wanted(path).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(to("boot/vmlinuz-6.1.0-56-amd64").as_deref(), Some("vmlinuz"));
        assert_eq!(to("usr/lib/modules/7.2.13+deb14-amd64/vmlinuz").as_deref(), Some("vmlinuz"));
        let veth = "lib/modules/6.1.0-56-amd64/kernel/drivers/net/veth.ko";
        assert_eq!(to(veth).as_deref(), Some(veth));
        assert_eq!(to(&format!("usr/{veth}")).as_deref(), Some(veth));
        assert_eq!(to("lib/modules/6.1.0-56-amd64/kernel/drivers/gpu/drm/drm.ko"), None);
        assert_eq!(to("boot/System.map-6.1.0-56-amd64"), None);
        assert_eq!(to("usr/share/doc/x"), None);
    }
}
