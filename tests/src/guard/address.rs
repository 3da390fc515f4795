//! Addresses on an interface in a network namespace.

use std::{
    io::Write as _,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::netns::MountedNetns;

/// One address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

/// Addresses that are removed with the guard.
///
/// One run of `ip` adds all of them, and another removes them, because starting a program is slow under
/// emulation. Each IPv4 address needs its own prefix (/32), because the kernel removes secondary addresses
/// with their primary one.
#[derive(Debug)]
pub struct AddressGuard {
    netns: PathBuf,
    interface: String,
    prefixes: Vec<Prefix>,
}

impl AddressGuard {
    pub fn add(netns: &MountedNetns, interface: &str, prefixes: &[Prefix]) -> Result<Self> {
        batch(netns.path(), &lines("add", interface, prefixes))?;
        Ok(Self {
            netns: netns.path().to_owned(),
            interface: interface.to_owned(),
            prefixes: prefixes.to_owned(),
        })
    }

    pub fn end(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        let prefixes = std::mem::take(&mut self.prefixes);
        batch(&self.netns, &lines("delete", &self.interface, &prefixes))
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        // An error in drop cannot be reported. The namespace removes the rest with itself.
        let _ = self.release();
    }
}

fn lines(verb: &str, interface: &str, prefixes: &[Prefix]) -> String {
    let line =
        |prefix: &Prefix| format!("address {verb} {}/{} dev {interface}\n", prefix.address, prefix.length);
    prefixes.iter().map(line).collect()
}

/// Runs `ip` commands, one on each line, in the namespace.
fn batch(netns: &Path, commands: &str) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let name = netns.file_name().ok_or_else(|| anyhow!("{} has no name", netns.display()))?;
    let mut child = Command::new("ip")
        .arg("-netns")
        .arg(name)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start ip; is iproute2 installed?")?;
    let mut input = child.stdin.take().ok_or_else(|| anyhow!("ip has no input"))?;
    input.write_all(commands.as_bytes())?;
    drop(input);
    let result = child.wait_with_output()?;
    if !result.status.success() {
        bail!("ip -batch ended with {}: {}", result.status, String::from_utf8_lossy(&result.stderr).trim());
    }
    Ok(())
}
