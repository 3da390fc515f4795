//! Container images that are built here, file by file. This needs no registry and no build tool, and gives
//! the same bytes every time.
//!
//! The format is the "docker archive", which every runtime imports: a layer, a configuration and a manifest
//! in one tar file.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::command;

/// The sandbox's image. The name is fully qualified, as runtimes look it up.
pub const PAUSE: &str = "docker.io/local/pause:1";
/// The image of every other container: one static program with many names.
pub const BUSYBOX: &str = "docker.io/local/busybox:1";
/// The name of that program in the image.
pub(crate) const PROGRAM: &str = "busybox";
/// The image of a program that prints when it began and when it listens.
pub const WITNESS: &str = "docker.io/local/witness:1";
pub(crate) const WITNESS_PROGRAM: &str = "witness";

/// The architecture of the programs, which is this one's own, by its name in images. A runtime refuses
/// others.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// An image of one layer.
#[derive(Debug)]
pub struct Image {
    reference: &'static str,
    /// The source of each program, and its path in the image.
    programs: Vec<(PathBuf, String)>,
    /// Symbolic links, each with its target.
    links: Vec<(String, String)>,
    command: Vec<String>,
}

impl Image {
    /// Returns the sandbox's image with the tests' own static `pause`.
    pub fn pause(program: &Path) -> Self {
        Self {
            reference: PAUSE,
            programs: vec![(program.to_owned(), "bin/pause".to_owned())],
            links: Vec::new(),
            command: vec!["/bin/pause".to_owned()],
        }
    }

    /// Returns an image with the machine's static busybox and a link for each of its programs.
    pub fn busybox(program: &Path) -> Result<Self> {
        let text = program.to_str().context("the path of busybox is not UTF-8")?;
        let names = command::output(text, &["--list"])?;
        let link = |name: &str| (format!("bin/{name}"), PROGRAM.to_owned());
        Ok(Self {
            reference: BUSYBOX,
            programs: vec![(program.to_owned(), format!("bin/{PROGRAM}"))],
            links: names.lines().filter(|name| *name != PROGRAM).map(link).collect(),
            command: vec!["/bin/sh".to_owned()],
        })
    }

    /// Returns an image with one static program in `bin`, under its own name.
    pub fn program(reference: &'static str, program: &Path) -> Result<Self> {
        let name = program.file_name().and_then(|name| name.to_str()).context("the program has no name")?;
        Ok(Self {
            reference,
            programs: vec![(program.to_owned(), format!("bin/{name}"))],
            links: Vec::new(),
            command: vec![format!("/bin/{name}")],
        })
    }

    /// Imports the image into the containerd at this socket, for pods.
    pub fn import(&self, socket: &Path) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let archive = folder.path().join("image.tar");
        self.write(&archive)?;
        import(socket, &archive)
    }

    /// Its layer and its configuration, in the form of both Docker and OCI.
    pub(crate) fn parts(&self) -> Result<(Vec<u8>, String)> {
        let layer = self.layer()?;
        let configuration = json!({
            "architecture": ARCHITECTURE,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": { "Env": ["PATH=/bin"], "Cmd": self.command },
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
            "history": [{ "created": "1970-01-01T00:00:00Z" }],
        });
        Ok((layer, configuration.to_string()))
    }

    /// Writes the archive.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let (layer, configuration) = self.parts()?;
        let layer_digest = hex(&layer);
        let configuration_name = format!("{}.json", hex(configuration.as_bytes()));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{
            "Config": configuration_name,
            "RepoTags": [self.reference],
            "Layers": [layer_name],
        }])
        .to_string();

        let file = File::create(archive).with_context(|| format!("make {}", archive.display()))?;
        let mut outer = Builder::new(file);
        add_file(&mut outer, &configuration_name, 0o644, configuration.as_bytes())?;
        add_file(&mut outer, &layer_name, 0o644, &layer)?;
        add_file(&mut outer, "manifest.json", 0o644, manifest.as_bytes())?;
        outer.into_inner()?.flush().with_context(|| format!("write {}", archive.display()))
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            let mut header = header(EntryType::Directory, 0o755, 0);
            layer.append_data(&mut header, directory, std::io::empty())?;
        }
        for (source, target) in &self.programs {
            let program = fs::read(source).with_context(|| format!("read {}", source.display()))?;
            if needs_interpreter(&program) {
                bail!("{} is linked dynamically and cannot run in an image of its own", source.display());
            }
            add_file(&mut layer, target, 0o755, &program)?;
        }
        for (name, target) in &self.links {
            layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), name, target)?;
        }
        Ok(layer.into_inner()?)
    }
}

/// Imports the image in an archive into the containerd at this socket, for pods.
pub(crate) fn import(socket: &Path, archive: &Path) -> Result<()> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (socket, archive) = (text(socket)?, text(archive)?);
    command::run("ctr", &["--address", &socket, "--namespace", "k8s.io", "images", "import", &archive])
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn add_file<W: Write>(archive: &mut Builder<W>, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let size = u64::try_from(bytes.len())?;
    archive
        .append_data(&mut header(EntryType::Regular, mode, size), name, bytes)
        .with_context(|| format!("add {name} to the archive"))
}

/// Returns the digest in the form that images use.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a program is linked dynamically. Such a program contains the name of its loader.
fn needs_interpreter(program: &[u8]) -> bool {
    const LOADER: &[u8] = b"/ld-linux-x86-64.so.2\0";
    // The name is in the first page, where the linker puts the PT_INTERP segment.
    let first = &program[..program.len().min(4096)];
    first.windows(LOADER.len()).any(|window| window == LOADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_found_by_its_loader() {
        let mut program = b"\x7fELF".to_vec();
        assert!(!needs_interpreter(&program));
        program.extend_from_slice(b"/lib64/ld-linux-x86-64.so.2\0");
        assert!(needs_interpreter(&program));
    }
}
