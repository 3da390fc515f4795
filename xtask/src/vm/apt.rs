//! Packages of any Debian release, without changes to this machine's own apt.
//!
//! Each release has a private apt below `target/vm/apt` for each architecture, with its own sources, lists
//! and cache. Mirror, proxy and keys are this machine's. Nothing is pinned: the current packages of the
//! release are used, and missing ones are named.

use super::store;
use crate::arch::Arch;
use crate::mirrors::{self, Mirrors};
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The settings of this machine's apt that are needed to reach a mirror.
const CARRIED: [&str; 4] = ["Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::ForceIP"];

/// A Debian release with a fresh index. Its folder is locked until this is dropped.
pub(super) struct Release {
    name: &'static str,
    dir: PathBuf,
    _lock: File,
}

impl Release {
    /// Fetches the index. Called only before something is built.
    pub(super) fn open(arch: Arch, name: &'static str) -> Result<Self> {
        let all = store::root().join("apt");
        let folder = arch.name_of(name);
        let lock = store::lock(&all, &folder)?;
        let dir = all.join(folder);
        for folder in ["state/lists/partial", "cache/archives/partial", "etc"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let release = Self { name, dir, _lock: lock };
        release.write("etc/sources.list", &sources(arch, name, &Mirrors::find()?))?;
        release.write("apt.conf", &config(arch, &release.dir, &carried()?))?;
        release.write("status", "")?;
        let updated =
            release.apt("apt-get").args(["--quiet", "update"]).output().context("cannot run apt-get")?;
        ensure!(
            updated.status.success(),
            "cannot fetch the package index of Debian {name}: {}",
            complaint(&updated.stderr)
        );
        Ok(release)
    }

    /// Returns a field of the newest version of a package; `None` if the release has no such package.
    pub(super) fn field(&self, package: &str, field: &str) -> Result<Option<String>> {
        let shown = self
            .apt("apt-cache")
            .args(["show", "--no-all-versions", package])
            .output()
            .context("cannot run apt-cache")?;
        let text = String::from_utf8_lossy(&shown.stdout);
        Ok(text.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name == field).then(|| value.to_owned())
        }))
    }

    /// Fetches the newest version of each package. Unpacks into `into` the files for which `wanted` returns a
    /// path there.
    pub(super) fn unpack(
        &self,
        packages: &[&str],
        into: &Path,
        wanted: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<()> {
        for package in packages {
            ensure!(
                self.field(package, "Version")?.is_some(),
                "Debian {} has no package {package} (any more)",
                self.name
            );
        }
        let folder = self.dir.join("download");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let got = self
            .apt("apt-get")
            .args(["--quiet", "download"])
            .args(packages)
            .current_dir(&folder)
            .output()
            .context("cannot run apt-get")?;
        ensure!(
            got.status.success(),
            "cannot download {} of Debian {}: {}",
            packages.join(" "),
            self.name,
            complaint(&got.stderr)
        );
        for deb in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            unpack(&deb?.path(), into, &wanted)?;
        }
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    /// Returns the file with the lines that another tool needs to install from this release.
    pub(super) fn sources_file(&self) -> PathBuf {
        self.dir.join("etc/sources.list")
    }

    fn apt(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        apt.env("APT_CONFIG", self.dir.join("apt.conf")).env("LC_ALL", "C").stdin(Stdio::null());
        apt
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn unpack(deb: &Path, into: &Path, wanted: impl Fn(&str) -> Option<PathBuf>) -> Result<()> {
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let stream = child.stdout.take().context("dpkg-deb has no output")?;
    let mut archive = tar::Archive::new(stream);
    for file in archive.entries().with_context(|| format!("cannot unpack {}", deb.display()))? {
        let mut file = file.with_context(|| format!("cannot unpack {}", deb.display()))?;
        let path = String::from_utf8_lossy(&file.path_bytes()).into_owned();
        if file.header().entry_type().is_dir() {
            continue;
        }
        let Some(to) = wanted(path.trim_start_matches("./")) else { continue };
        let to = into.join(to);
        let parent = to.parent().unwrap_or(into);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        file.unpack(&to).with_context(|| format!("cannot unpack {}", to.display()))?;
    }
    ensure!(child.wait()?.success(), "cannot unpack {}: dpkg-deb failed", deb.display());
    Ok(())
}

fn sources(arch: Arch, release: &str, mirrors: &Mirrors) -> String {
    // A mirror that lags serves an index of sid past its date: still signed, and new enough for a test.
    let arch = format!("arch={}", arch.short());
    let options = [&*arch, "check-valid-until=no"];
    let mut lines = mirrors::line(&mirrors.main, release, &options);
    if release != "sid"
        && let Some(security) = &mirrors.security
    {
        lines += &mirrors::line(security, &format!("{release}-security"), &options);
    }
    lines
}

fn config(arch: Arch, dir: &Path, carried: &str) -> String {
    let dir = dir.display();
    let arch = arch.short();
    format!(
        r#"{carried}Dir "{dir}";
Dir::Etc "etc";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::TrustedParts "/etc/apt/trusted.gpg.d";
Dir::Etc::Netrc "/etc/apt/auth.conf";
Dir::Etc::NetrcParts "/etc/apt/auth.conf.d";
Dir::State "state";
Dir::State::Status "{dir}/status";
Dir::Cache "cache";
Acquire::Languages "none";
APT::Architecture "{arch}";
APT::Architectures "{arch}";
APT::Update::Error-Mode "any";
APT::Sandbox::User "root";
"#
    )
}

fn carried() -> Result<String> {
    let dump = workspace::output(Command::new("apt-config").args(["dump", "Acquire"]))?;
    let kept = dump.lines().filter(|line| CARRIED.iter().any(|option| line.starts_with(option)));
    Ok(kept.map(|line| format!("{line}\n")).collect())
}

/// Returns the line of apt's output that names the error.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let error = text.lines().find_map(|line| line.strip_prefix("E: "));
    error.or(text.lines().last()).unwrap_or("it says nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sid_has_no_security_suite() {
        let mirrors = Mirrors { main: "http://a/debian".into(), security: Some("http://a/sec".into()) };
        assert_eq!(sources(Arch::X86_64, "sid", &mirrors).lines().count(), 1);
        let trixie = sources(Arch::Aarch64, "trixie", &mirrors);
        assert!(trixie.lines().all(|line| line.contains("arch=arm64")), "{trixie}");
        assert!(trixie.lines().nth(1).unwrap().ends_with("http://a/sec trixie-security main"), "{trixie}");
    }

    #[test]
    fn the_error_among_apts_words() {
        assert_eq!(complaint(b"W: old\nE: no such release\nW: more\n"), "no such release");
        assert_eq!(complaint(b"killed\n"), "killed");
        assert_eq!(complaint(b""), "it says nothing");
    }
}
