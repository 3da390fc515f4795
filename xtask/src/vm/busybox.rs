//! Debian's static busybox: the first program of the VM, and the content of the test containers.

use super::apt::Release;
use super::store::{self, Key};
use crate::arch::Arch;
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Returns the program, as a file on this machine.
pub(super) fn get(arch: Arch) -> Result<PathBuf> {
    let key = Key::new().with("busybox 1");
    let dir = store::entry("busybox", &arch.name_of("trixie"), &key, |dir| {
        super::say(format_args!("fetching busybox of Debian trixie"));
        Release::open(arch, "trixie")?.unpack(&["busybox-static"], dir, |path| {
            path.ends_with("bin/busybox").then(|| "busybox".into())
        })?;
        ensure!(dir.join("busybox").is_file(), "Debian's busybox-static holds no busybox");
        Ok(())
    })?;
    Ok(dir.join("busybox"))
}
