//! Debian packages: checks for them, and installs the missing ones.
//!
//! A package is not installed if a file shows that its content is there, whoever installed it: Docker's own
//! containerd on a node must not be replaced by Debian's.

use crate::mirrors::{self, Mirrors, apt_get};
use crate::{root, workspace};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// `--no-remove`: fail rather than remove a conflicting package of the user.
const INSTALL: [&str; 4] = ["install", "--yes", "--no-remove", "--no-install-recommends"];
const SOURCES: &str = "/etc/apt/sources.list.d";

/// A tool that this machine needs, and the Debian package that provides it.
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

/// Installs the missing packages with apt-get as root, and says so. If none is missing, it returns at once.
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
    mirrors::update()?;
    let Err(refused) = install(&missing) else { return Ok(()) };
    // If some packages of a family came from backports, the others must come from there too.
    match Backports::open() {
        Ok(backports) => backports.install(&missing),
        Err(error) => Err(refused.context(format!("without backports: {error:#}"))),
    }
    .with_context(|| format!("cannot install {names}"))
}

/// Whether apt can install this package from the suites of this machine.
pub(crate) fn is_available(package: &str) -> bool {
    Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The backports of this machine's release, added to its own sources while this lives.
struct Backports {
    suite: String,
    /// Used in place of `sources.list.d`, which is not changed.
    parts: tempfile::TempDir,
}

impl Backports {
    fn open() -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
        let suite = backports_of(&release).context("this is no release of Debian")?;
        let line = mirrors::line(&Mirrors::find()?.main, &suite, &[]);
        println!("setup: adding the suite {suite} for this once");
        let parts = tempfile::tempdir().context("cannot make a temporary folder")?;
        // apt fetches as its own user, who must be able to read the folder.
        fs::set_permissions(parts.path(), fs::Permissions::from_mode(0o755))?;
        if let Ok(own) = fs::read_dir(SOURCES) {
            for file in own {
                let file = file?;
                fs::copy(file.path(), parts.path().join(file.file_name()))
                    .with_context(|| format!("cannot copy {}", file.path().display()))?;
            }
        }
        fs::write(parts.path().join("backports.list"), line).context("cannot write apt's sources")?;
        Ok(Self { suite, parts })
    }

    fn install(&self, packages: &[&str]) -> Result<()> {
        let parts = format!("Dir::Etc::SourceParts={}", self.parts.path().display());
        apt_get(&["-o", &parts, "update"])?;
        let mut args = vec!["-o", &parts, "-t", &self.suite];
        args.extend(INSTALL);
        args.extend(packages);
        apt_get(&args)
    }
}

fn backports_of(os_release: &str) -> Option<String> {
    if field(os_release, "ID") != Some("debian") {
        return None;
    }
    Some(format!("{}-backports", field(os_release, "VERSION_CODENAME")?))
}

/// Reads a line `NAME=value`.
fn field<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = os_release.lines().filter_map(|line| line.split_once('='));
    fields.find(|(is, _)| *is == name).map(|(_, value)| value)
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|out| out.stdout == b"installed")
}

fn install(packages: &[&str]) -> Result<()> {
    let mut args = INSTALL.to_vec();
    args.extend(packages);
    apt_get(&args)
}

#[cfg(test)]
mod tests {
    use super::backports_of;

    #[test]
    fn backports_by_the_releases_name() {
        let debian = "PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(backports_of(debian).as_deref(), Some("bookworm-backports"));
        assert_eq!(backports_of("VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n"), None);
        assert_eq!(backports_of("ID=debian\n"), None, "sid has none");
    }
}
