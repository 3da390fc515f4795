//! Finds out whether KVM works here. That /dev/kvm can be opened is not enough: under some hypervisors a
//! guest's kernel then faults or is very slow. So a real kernel is booted with it, once for each host kernel
//! and QEMU.

use super::qemu::{self, Accel, Boot};
use super::store::{self, Key};
use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The time limit of a boot: a working KVM needs about one second, emulation four.
const BOOT_LIMIT: Duration = Duration::from_secs(8);
/// The text that the initramfs prints.
const RUNS: &str = "vm: the kernel runs";

/// Returns KVM if `boot` works with it here, otherwise emulation.
pub(super) fn get(boot: &Boot<'_>) -> Result<Accel> {
    // This machine's processor cannot execute another architecture's instructions.
    if !boot.arch.is_ours() || File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accel::Emulation);
    }
    let host = fs::read_to_string("/proc/version").context("cannot read /proc/version")?;
    let key = Key::new().with("accel 1").with(host).with(qemu::version(boot.arch)?);
    let dir = store::entry("accel", "host", &key, |dir| {
        super::say(format_args!("trying KVM"));
        let accel = if runs(boot)? { Accel::Kvm } else { Accel::Emulation };
        super::say(format_args!("VMs run by {}", accel.name()));
        fs::write(dir.join("accel"), accel.name()).context("cannot write which accelerator works")
    })?;
    let name = fs::read_to_string(dir.join("accel")).context("cannot read which accelerator works")?;
    Ok(if name == Accel::Kvm.name() { Accel::Kvm } else { Accel::Emulation })
}

fn runs(boot: &Boot<'_>) -> Result<bool> {
    let boot = Boot { choices: "vm_probe=1", ..*boot };
    let mut child = qemu::command(boot.arch)
        .args(qemu::bare(Accel::Kvm, &boot))
        .args(["-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", qemu::program(boot.arch)))?;
    let stdout = child.stdout.take().context("QEMU has no output")?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || sender.send(says_so(stdout)));
    let runs = receiver.recv_timeout(BOOT_LIMIT).unwrap_or(false);
    // It may have ended by itself. In both cases the reader's pipe closes.
    let _ = child.kill();
    child.wait().context("cannot wait for QEMU")?;
    let _ = reader.join();
    Ok(runs)
}

fn says_so(console: ChildStdout) -> bool {
    BufReader::new(console).split(b'\n').map_while(Result::ok).any(|line| contains(&line, RUNS.as_bytes()))
}

fn contains(line: &[u8], words: &[u8]) -> bool {
    line.windows(words.len()).any(|window| window == words)
}
