//! Debian packages: what is there, and getting what is not.
//!
//! Something counts as there when its proof is, whoever installed it: a node with Docker's own containerd must not
//! have it replaced by Debian's.

use crate::{root, workspace};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// One thing that must be on this machine, and the Debian package that brings it.
pub(crate) struct Need {
    proof: Proof,
    package: &'static str,
}

enum Proof {
    /// One of these exists: an absolute path, or a command found in PATH or the sbin folders.
    Any(&'static [&'static str]),
    /// dpkg says that the package itself is installed.
    Installed,
}

impl Need {
    pub(crate) const fn any(proofs: &'static [&'static str], package: &'static str) -> Self {
        Self { proof: Proof::Any(proofs), package }
    }

    pub(crate) const fn package(package: &'static str) -> Self {
        Self { proof: Proof::Installed, package }
    }

    fn is_met(&self) -> bool {
        match self.proof {
            Proof::Any(proofs) => proofs.iter().any(|proof| {
                if proof.starts_with('/') {
                    Path::new(proof).exists()
                } else {
                    workspace::which(proof).is_some()
                }
            }),
            Proof::Installed => is_installed(self.package),
        }
    }
}

/// Installs what is missing with apt-get, as root, saying so; does nothing, quickly, when nothing is missing.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<&str> = needs.iter().filter(|need| !need.is_met()).map(|need| need.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if workspace::which("apt-get").is_none() {
        bail!(
            "missing here: what Debian packages as {names}; install it by this system's own package manager"
        );
    }
    println!("setup: installing with apt-get: {names}");
    root::authorize()?;
    if install(&missing).is_ok() {
        return Ok(());
    }
    // The lists may be old, or there may be none yet.
    println!("setup: updating apt's lists first");
    update()?;
    install(&missing).with_context(|| format!("cannot install {names}"))
}

/// Whether apt could install this package from the suites that this machine has.
pub(crate) fn is_available(package: &str) -> bool {
    Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Fetches apt's lists. One repository out of reach is said, and keeps none of the others' packages from us.
pub(crate) fn update() -> Result<()> {
    root::authorize()?;
    if let Err(error) = apt_get(&["update"]) {
        println!("setup: going on, though {error:#}");
    }
    Ok(())
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|out| out.stdout == b"installed")
}

fn install(packages: &[&str]) -> Result<()> {
    // --no-remove: rather fail than take away a package of the user's that conflicts.
    let mut args = vec!["install", "--yes", "--no-remove", "--no-install-recommends"];
    args.extend(packages);
    apt_get(&args)
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = root::command("env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]);
    workspace::output(command.args(args).stdin(Stdio::null())).map(drop)
}
