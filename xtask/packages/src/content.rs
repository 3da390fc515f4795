//! The files of a package, and where each family of distributions has them.

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};
use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

const UNIT: &str = include_str!("../../../deploy/systemd/sandprobe.service");
const CONFIG: &str = include_str!("../../../deploy/package/sandprobe.toml");
const README: &str = include_str!("../../../README.md");
const CHANGELOG: &str = include_str!("../../../CHANGELOG.md");
pub(crate) const MIT: &str = include_str!("../../../LICENSE-MIT");
const APACHE: &str = include_str!("../../../LICENSE-APACHE");

/// The unit's command for an installation by hand. Packages replace it with [`PACKAGED`].
const BY_HAND: &str = "ExecStart=/usr/local/bin/sandprobe ";
const PACKAGED: &str =
    "Environment=SANDPROBE_CONFIG=/etc/sandprobe/sandprobe.toml\nExecStart=/usr/bin/sandprobe ";

/// The results of a build.
pub(crate) struct Parts {
    pub(crate) program: Vec<u8>,
    /// The manual and the completions, by their paths (`man/sandprobe.1`).
    pub(crate) papers: Vec<(String, Vec<u8>)>,
    pub(crate) sbom: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Debian,
    Fedora,
}

/// A file, by its path from the root without the first slash.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) role: Role,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Program,
    /// The owner of the node may change it, and an upgrade keeps it.
    Config,
    Document,
    License,
    Other,
}

pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// A symbolic link, with its target.
    Link(&'static str),
}

impl File {
    pub(crate) fn new(path: impl Into<String>, role: Role, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), role, content: Content::Bytes(bytes.into()) }
    }

    fn link(path: &str, target: &'static str) -> Self {
        Self { path: path.to_owned(), role: Role::Other, content: Content::Link(target) }
    }

    /// `None` for a link.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            Content::Link(_) => None,
        }
    }

    pub(crate) const fn mode(&self) -> u16 {
        match self.role {
            Role::Program => 0o755,
            Role::Config | Role::Document | Role::License | Role::Other => 0o644,
        }
    }
}

/// The files of a package for this family.
pub(crate) fn files(parts: &Parts, family: Family) -> Result<Vec<File>> {
    let mut all = vec![
        File::new("usr/bin/sandprobe", Role::Program, parts.program.as_slice()),
        File::link("usr/bin/kubectl-sandprobe", "sandprobe"),
        File::new("usr/lib/systemd/system/sandprobe.service", Role::Other, unit()?),
        File::new("etc/sandprobe/sandprobe.toml", Role::Config, CONFIG),
        File::new("usr/share/doc/sandprobe/README.md", Role::Document, README),
        File::new("usr/share/doc/sandprobe/sandprobe.cdx.json", Role::Document, parts.sbom.as_slice()),
        File::link("usr/share/man/man1/kubectl-sandprobe.1.gz", "sandprobe.1.gz"),
    ];
    match family {
        // The file `copyright` has the licences.
        Family::Debian => {
            let packed = gzip(CHANGELOG.as_bytes())?;
            all.push(File::new("usr/share/doc/sandprobe/changelog.gz", Role::Document, packed));
        }
        Family::Fedora => all.extend([
            File::new("usr/share/doc/sandprobe/CHANGELOG.md", Role::Document, CHANGELOG),
            File::new("usr/share/licenses/sandprobe/LICENSE-APACHE", Role::License, APACHE),
            File::new("usr/share/licenses/sandprobe/LICENSE-MIT", Role::License, MIT),
        ]),
    }
    for (path, bytes) in &parts.papers {
        all.push(paper(path, bytes, family)?);
    }
    Ok(all)
}

fn unit() -> Result<String> {
    ensure!(UNIT.matches(BY_HAND).count() == 1, "the unit has not one line that begins with {BY_HAND:?}");
    Ok(UNIT.replace(BY_HAND, PACKAGED))
}

fn paper(path: &str, bytes: &[u8], family: Family) -> Result<File> {
    if let Some(page) = path.strip_prefix("man/") {
        let path = format!("usr/share/man/man1/{page}.gz");
        return Ok(File::new(path, Role::Document, gzip(bytes)?));
    }
    let (shell, name) = path
        .strip_prefix("completions/")
        .and_then(|path| path.split_once('/'))
        .with_context(|| format!("{path} is neither of the manual nor a completion"))?;
    let folder = match (shell, family) {
        ("bash", _) => "bash-completion/completions",
        ("fish", _) => "fish/vendor_completions.d",
        ("zsh", Family::Debian) => "zsh/vendor-completions",
        ("zsh", Family::Fedora) => "zsh/site-functions",
        _ => anyhow::bail!("{path} is for a shell whose folder for completions is not known"),
    };
    Ok(File::new(format!("usr/share/{folder}/{name}"), Role::Other, bytes))
}

/// The folders of the files, each before what is in it.
pub(crate) fn folders(files: &[File]) -> BTreeSet<String> {
    let above = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    above.filter(|path| !path.as_os_str().is_empty()).map(|path| path.display().to_string()).collect()
}

/// Writes a gzip header without name and time.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gz.write_all(bytes)?;
    gz.finish()
}

/// The files of a tar file, by their paths in it.
pub(crate) fn untarred(tar: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.push((entry.path()?.display().to_string(), bytes));
    }
    Ok(files)
}
