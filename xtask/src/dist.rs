//! `cargo xtask dist`: makes a release for each architecture: the static agent with its documents, packages,
//! an image and an SBOM.
//!
//! Invariant: the same commit, the same names and the same tools give the same bytes. The only time is the
//! commit's (`SOURCE_DATE_EPOCH`), no path of this machine is included, and files are sorted by name. The
//! commit does not fix the C compilers, the linkers and LLVM, which come from the distribution.

mod archive;
mod binary;
mod image;
mod man_pages;
mod notes;
mod origin;
mod packages;
mod sbom;

use crate::arch::Arch;
use crate::workspace;
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use origin::Origin;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;
use std::{env, iter};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build only for this architecture; may be repeated
    #[arg(long, value_enum)]
    arch: Vec<Arch>,
    /// The tag that is released: it must be the version's, and the changelog must have this version
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    #[command(flatten)]
    origin: Origin,
}

/// What the files of a release say about it.
pub(crate) struct Release {
    pub(crate) version: &'static str,
    /// Seconds since the epoch.
    pub(crate) made: u64,
    /// The commit; empty where there is no git.
    pub(crate) revision: String,
    pub(crate) origin: Origin,
}

impl Release {
    pub(crate) fn find(origin: Origin) -> Result<Self> {
        let epoch = env::var("SOURCE_DATE_EPOCH").ok();
        let made = made(epoch.as_deref(), || git("--format=%ct"), &workspace::root().join("CHANGELOG.md"))?;
        // xtask has the version of the workspace.
        let revision = git("--format=%H").unwrap_or_default();
        Ok(Self { version: env!("CARGO_PKG_VERSION"), made, revision, origin })
    }
}

/// Asks git about the last commit.
fn git(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    workspace::output(git.args(["log", "-1", format]).current_dir(workspace::root()))
}

/// Returns the time of a release, in seconds since the epoch: the given one, else that of the commit. Without
/// git, as in an archive of the sources or in another user's checkout, it is the time of the changelog's
/// file, which in an archive is the commit's.
fn made(told: Option<&str>, commit: impl FnOnce() -> Result<String>, changelog: &Path) -> Result<u64> {
    if let Some(told) = told {
        return told.parse().with_context(|| format!("SOURCE_DATE_EPOCH is not a number: {told}"));
    }
    match commit() {
        Ok(time) => time.parse().with_context(|| format!("git prints no time of the commit, but {time:?}")),
        Err(why) => {
            let changed = fs::metadata(changelog).and_then(|about| about.modified());
            let changed = changed.with_context(|| format!("cannot read {}", changelog.display()))?;
            println!(
                "dist: all files get the date of CHANGELOG.md, because there is neither SOURCE_DATE_EPOCH nor git: {why:#}"
            );
            Ok(changed.duration_since(UNIX_EPOCH).context("CHANGELOG.md is dated before 1970")?.as_secs())
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut machines = args.arch.clone();
    if machines.is_empty() {
        machines = Arch::value_variants().to_vec();
    }
    machines.sort_unstable();
    machines.dedup();
    let release = Release::find(args.origin.clone())?;
    let name = format!("sandprobe-{}", release.version);
    // First, so that a wrong tag is refused before anything is built.
    let notes = args.tag.as_ref().map(|tag| notes::of(tag, &release)).transpose()?;
    let dir = workspace::target_dir().join("dist").join(&name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;

    let mut images = Vec::new();
    for arch in machines {
        let binary = binary::build(arch)?;
        let bytes = fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
        let sbom = sbom::of(arch, &release)?;
        let papers = man_pages::of(arch, &binary)?;
        let base = format!("{name}-{}", arch.name());
        write(&dir, &format!("{base}.cdx.json"), &sbom)?;
        write(&dir, &format!("{base}.tar.gz"), &archive::of_program(&base, &bytes, &papers, &release)?)?;
        packages::of(arch, &binary, &papers, &sbom, &release, &dir)?;
        let image = image::Image::new(arch, &bytes, &release)?;
        write(&dir, &format!("{name}-image-{}.tar", arch.short()), &image::archive(&[&image], &release)?)?;
        images.push(image);
    }
    if images.len() > 1 {
        let images: Vec<_> = images.iter().collect();
        write(&dir, &format!("{name}-image.tar"), &image::archive(&images, &release)?)?;
    }
    let deploy = workspace::root().join("deploy");
    let chart = archive::of_folder("sandprobe", &deploy.join("helm/sandprobe"), &release)?;
    write(&dir, &format!("{name}-chart.tgz"), &chart)?;
    let manifests = archive::of_folder("manifests", &deploy.join("manifests"), &release)?;
    write(&dir, &format!("{name}-manifests.tar.gz"), &manifests)?;
    if let Some(notes) = notes {
        write(&dir, &format!("{name}-notes.md"), notes.as_bytes())?;
    }
    let sums = sums(&dir)?;
    write(&dir, "SHA256SUMS", sums.as_bytes())?;
    print!("{sums}");
    println!("{}", dir.display());
    Ok(())
}

/// Builds the program of a release for this architecture.
pub(crate) fn program(arch: Arch) -> Result<PathBuf> {
    binary::build(arch)
}

/// Makes an image of an existing program, for a test.
pub(crate) fn image_of(arch: Arch, binary: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let release = unreleased();
    let image = image::Image::new(arch, &bytes, &release)?;
    fs::write(to, image::archive(&[&image], &release)?)
        .with_context(|| format!("cannot write {}", to.display()))
}

/// Makes the Debian package of an existing program, for a test.
pub(crate) fn debian_package_of(arch: Arch, binary: &Path) -> Result<PathBuf> {
    let dir = workspace::target_dir().join("dist/packages");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let papers = man_pages::of(arch, binary)?;
    let made = packages::of(arch, binary, &papers, b"{}", &unreleased(), &dir)?;
    let debian = made.into_iter().find(|path| path.extension().is_some_and(|it| it == "deb"));
    debian.context("no Debian package was made")
}

fn unreleased() -> Release {
    Release {
        version: env!("CARGO_PKG_VERSION"),
        made: 0,
        revision: String::new(),
        origin: Origin::default(),
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the sums in the format of `sha256sum --check`.
fn sums(dir: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut sums = String::new();
    for path in &files {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        sums += &format!("{}  {name}\n", digest(&bytes));
    }
    Ok(sums)
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a date such as `2026-11-21T22:52:44Z`, by Howard Hinnant's `civil_from_days`. No library is used,
/// because a fresh machine would have to build it before anything else.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let hour = seconds / 3600 % 24;
    let minute = seconds / 60 % 60;
    let second = seconds % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the files below a folder with their paths in it, sorted by name. A link to a file counts as that
/// file.
fn files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = iter::once(folder.to_owned()).collect();
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).with_context(|| format!("cannot read {}", at.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            found.push((name, bytes));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{date, made};
    use anyhow::anyhow;
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_release_is_dated_without_git_too() {
        let folder = tempfile::tempdir().unwrap();
        let changelog = folder.path().join("CHANGELOG.md");
        fs::write(&changelog, "").unwrap();
        let changed = UNIX_EPOCH + Duration::from_secs(951_782_400);
        File::options().write(true).open(&changelog).unwrap().set_modified(changed).unwrap();
        let made = |told, commit: Option<&str>| {
            made(told, || commit.map(str::to_owned).ok_or_else(|| anyhow!("there is no git")), &changelog)
        };
        assert_eq!(made(Some("7"), Some("8")).unwrap(), 7);
        assert_eq!(made(None, Some("8")).unwrap(), 8);
        assert_eq!(made(None, None).unwrap(), 951_782_400);
        assert!(made(Some("today"), None).is_err() && made(None, Some("")).is_err());
    }

    #[test]
    fn dates_of_all_kinds_of_years() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_795_301_564), "2026-11-21T22:52:44Z");
    }
}
