//! Makes the Debian package and the RPM of a built program. `cargo xtask dist` calls it. It is not part of
//! xtask, so that its libraries are built only to make packages.
//!
//! cargo-deb and cargo-generate-rpm are not used: the second, of version 0.21, cannot put a link into a
//! package, and both would have to be built on each fresh machine. The RPM is made by the library that the
//! second uses.
//!
//! Invariant: the same input gives the same bytes. The only time is the commit's.
#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]

mod content;
mod deb;
mod rpm;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use content::Parts;
use std::fs;
use std::path::{Path, PathBuf};

/// The version of the workspace, which is the program's.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The revision of the packages. It rises when the same version of the program is packaged again.
const REVISION: &str = "1";
const LICENSE: &str = env!("CARGO_PKG_LICENSE");
const SUMMARY: &str = "Kernel timestamps and verdicts for the life of pods";
/// Lines of less than 80 columns, because package managers show them as they are.
const DESCRIPTION: [&str; 6] = [
    "sandprobe hooks the kernel with eBPF where pods of Kubernetes are made and",
    "ended. It tells which pod IP leaked and why, which sandbox nobody needed,",
    "who killed pause, what is stuck or left over, and where the time of each",
    "start went. It reads, and frees, repairs and blocks nothing.",
    "The service is not enabled: systemctl enable --now sandprobe. The same",
    "program is a plugin of kubectl.",
];

#[derive(Parser)]
#[command(about = "Makes the Debian package and the RPM of a built program")]
struct Args {
    /// The architecture that the program is built for
    #[arg(long, value_enum)]
    arch: Arch,
    /// The built program
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// A tar file with its manual (man/) and completions (completions/)
    #[arg(long, value_name = "FILE")]
    papers: PathBuf,
    /// Its bill of materials
    #[arg(long, value_name = "FILE")]
    sbom: PathBuf,
    #[command(flatten)]
    origin: Origin,
    /// The folder to write the packages to
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// Who gives out the packages, and when.
#[derive(clap::Args)]
struct Origin {
    /// The time of the commit, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    made: u32,
    /// The address of the project's pages
    #[arg(long, value_name = "URL", value_parser = url)]
    home: Option<String>,
    /// Who answers for the packages
    #[arg(long, value_name = "NAME <ADDRESS>", value_parser = person)]
    maintainer: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let parts = Parts {
        program: read(&args.program)?,
        papers: content::untarred(&read(&args.papers)?)
            .with_context(|| format!("{} is no tar file", args.papers.display()))?,
        sbom: read(&args.sbom)?,
    };
    let deb = deb::package(args.arch, &parts, &args.origin)?;
    let rpm = rpm::package(args.arch, &parts, &args.origin)?;
    for (name, bytes) in [(deb::name(VERSION, args.arch), deb), (rpm::name(VERSION, args.arch), rpm)] {
        let path = args.to.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Both values become lines of a package's description, so they may not contain a line break.
fn url(text: &str) -> Result<String, String> {
    let is_url = text.starts_with("https://") && text.chars().all(|it| it.is_ascii_graphic());
    is_url.then(|| text.to_owned()).ok_or_else(|| "give it as https://HOST/PATH".to_owned())
}

fn person(text: &str) -> Result<String, String> {
    let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
    let is_person = parts.is_some_and(|(name, address)| {
        let is_one_line = !text.contains(char::is_control) && !name.trim().is_empty();
        is_one_line && address.contains('@') && !address.contains([' ', '<', '>'])
    });
    is_person.then(|| text.to_owned()).ok_or_else(|| "give it as NAME <ADDRESS>".to_owned())
}

/// Writes a pre-release (`1.0.0-rc.1`) with a tilde, so that package managers sort it before the release.
fn upstream(version: &str) -> String {
    version.replacen('-', "~", 1)
}
