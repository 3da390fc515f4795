//! The Debian package, format 2.0 (deb(5)): an archive of a version number, a tar file for dpkg and a tar
//! file with the files.

use crate::content::{self, Content, Family, File, MIT, Parts, Role, gzip};
use crate::{Arch, DESCRIPTION, LICENSE, Origin, REVISION, SUMMARY, VERSION, upstream};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use std::io;
use tar::{EntryType, Header};

/// The shell scripts that dpkg runs.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../../deploy/package/debian/postinst")),
    ("prerm", include_str!("../../../deploy/package/debian/prerm")),
    ("postrm", include_str!("../../../deploy/package/debian/postrm")),
];
/// Findings of lintian that are intended.
const OVERRIDES: &str = include_str!("../../../deploy/package/debian/lintian-overrides");

const fn architecture(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
    }
}

pub(crate) fn version(version: &str) -> String {
    format!("{}-{REVISION}", upstream(version))
}

/// The file's name has the program's version as it is: GitHub gives a file with a tilde another name.
pub(crate) fn name(version: &str, arch: Arch) -> String {
    format!("sandprobe_{version}-{REVISION}_{}.deb", architecture(arch))
}

pub(crate) fn package(arch: Arch, parts: &Parts, origin: &Origin) -> Result<Vec<u8>> {
    let mut files = content::files(parts, Family::Debian)?;
    let copyright = copyright(origin)?.into_bytes();
    files.push(File::new("usr/share/doc/sandprobe/copyright", Role::Document, copyright));
    let changelog = gzip(changelog(origin)?.as_bytes())?;
    files.push(File::new("usr/share/doc/sandprobe/changelog.Debian.gz", Role::Document, changelog));
    files.push(File::new("usr/share/lintian/overrides/sandprobe", Role::Other, OVERRIDES));
    files.sort_by(|one, other| one.path.cmp(&other.path));

    let mut about = vec![
        ("control", 0o644, control(arch, &files, origin)),
        ("md5sums", 0o644, sums(&files)),
        ("conffiles", 0o644, conffiles(&files)),
    ];
    about.extend(SCRIPTS.map(|(name, script)| (name, 0o755, script.to_owned())));
    let mut tar = Tar::new(origin.made);
    tar.folder("")?;
    for (name, mode, text) in &about {
        tar.file(name, *mode, text.as_bytes())?;
    }
    let about = gzip(&tar.end()?)?;

    let mut tar = Tar::new(origin.made);
    tar.folder("")?;
    for folder in content::folders(&files) {
        tar.folder(&format!("{folder}/"))?;
    }
    for file in &files {
        match &file.content {
            Content::Bytes(bytes) => tar.file(&file.path, file.mode().into(), bytes)?,
            Content::Link(target) => tar.link(&file.path, target)?,
        }
    }
    let data = gzip(&tar.end()?)?;

    let mut archive = ar::Builder::new(Vec::new());
    for (name, bytes) in
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &about), ("data.tar.gz", &data)]
    {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(origin.made.into());
        archive.append(&header, bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// There is no `Depends`: the program is static, and the scripts use only Debian's essential packages.
fn control(arch: Arch, files: &[File], origin: &Origin) -> String {
    // In KiB, each file rounded up, as Debian's policy asks.
    let size: u64 =
        files.iter().map(|file| file.bytes().map_or(1, |it| (it.len() as u64).div_ceil(1024))).sum();
    let homepage = origin.home.as_ref().map(|home| format!("Homepage: {home}\n")).unwrap_or_default();
    let description: String = DESCRIPTION.iter().map(|line| format!(" {line}\n")).collect();
    format!(
        "Package: sandprobe\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {size}\n\
         Section: admin\nPriority: optional\n{homepage}Description: {SUMMARY}\n{description}",
        version(VERSION),
        architecture(arch),
        origin.maintainer
    )
}

/// Returns the sums of all files except configuration, which the owner may change.
fn sums(files: &[File]) -> String {
    let mut sums = String::new();
    for file in files.iter().filter(|file| file.role != Role::Config) {
        let Some(bytes) = file.bytes() else { continue };
        let sum: String = Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        sums += &format!("{sum}  {}\n", file.path);
    }
    sums
}

fn conffiles(files: &[File]) -> String {
    let changed = files.iter().filter(|file| file.role == Role::Config);
    changed.map(|file| format!("/{}\n", file.path)).collect()
}

/// Writes the machine-readable copyright format 1.0.
fn copyright(origin: &Origin) -> Result<String> {
    let holder = MIT
        .lines()
        .find_map(|line| line.strip_prefix("Copyright (c) "))
        .context("LICENSE-MIT has no line with its copyright")?;
    let (_, terms) = MIT.split_once(holder).context("LICENSE-MIT has no terms")?;
    let terms: String = terms
        .trim()
        .lines()
        .map(|line| match line.trim() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        })
        .collect();
    let source = origin.home.as_ref().map(|home| format!("Source: {home}\n")).unwrap_or_default();
    let license = LICENSE.replace(" OR ", " or ");
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sandprobe\n\
         {source}Comment: The program contains the libraries that sandprobe.cdx.json beside this file lists, with their\n \
         licences.\n\nFiles: *\nCopyright: {holder}\nLicense: {license}\n\nLicense: MIT\n{terms}\nLicense: Apache-2.0\n \
         The text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// Returns the package's own changelog, which names the file of the program's.
fn changelog(origin: &Origin) -> Result<String> {
    let at = Timestamp::from_second(origin.made.into())?;
    let date = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
    Ok(format!(
        "sandprobe ({}) unstable; urgency=medium\n\n  * Version {VERSION}: changelog.gz says what is new.\n\n -- {}  {date}\n",
        version(VERSION),
        origin.maintainer
    ))
}

/// A tar file whose paths begin with `./`. All files belong to root and have one time.
struct Tar {
    builder: tar::Builder<Vec<u8>>,
    made: u32,
}

impl Tar {
    fn new(made: u32) -> Self {
        Self { builder: tar::Builder::new(Vec::new()), made }
    }

    /// Writes the path itself: the library would drop the `./` that dpkg writes.
    fn header(&self, path: &str, kind: EntryType, mode: u32, size: usize) -> io::Result<Header> {
        let path = format!("./{path}");
        let mut header = Header::new_gnu();
        let name = &mut header.as_old_mut().name;
        let room =
            name.get_mut(..path.len()).ok_or_else(|| io::Error::other(format!("{path} is too long")))?;
        room.copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_mtime(self.made.into());
        header.set_size(size as u64);
        Ok(header)
    }

    fn append(&mut self, mut header: Header, bytes: &[u8]) -> io::Result<()> {
        header.set_cksum();
        self.builder.append(&header, bytes)
    }

    /// The path ends with a slash; the root's path is empty.
    fn folder(&mut self, path: &str) -> io::Result<()> {
        let header = self.header(path, EntryType::Directory, 0o755, 0)?;
        self.append(header, &[])
    }

    fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let header = self.header(path, EntryType::Regular, mode, bytes.len())?;
        self.append(header, bytes)
    }

    fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let mut header = self.header(path, EntryType::Symlink, 0o777, 0)?;
        header.set_link_name(target)?;
        self.append(header, &[])
    }

    fn end(self) -> io::Result<Vec<u8>> {
        self.builder.into_inner()
    }
}
