//! The two container images, in one archive in the format of `docker save`. No registry is used.

use super::store::{self, Key};
use super::{busybox, say};
use crate::arch::Arch;
use crate::{cross, workspace};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const PAUSE_SOURCE: &str = include_str!("../../vm/pause.rs");
const PAUSE: &str = "docker.io/local/pause:1";
const BUSYBOX: &str = "docker.io/local/busybox:1";
/// The names of busybox in its image.
const APPLETS: &[&str] = &[
    "cat", "echo", "env", "false", "hostname", "httpd", "id", "ip", "kill", "ls", "mkdir", "nc", "ps", "rm",
    "sh", "sleep", "test", "touch", "true", "wget",
];

/// Returns the archive, as a file on this machine.
pub(super) fn get(arch: Arch) -> Result<PathBuf> {
    let key =
        APPLETS.iter().fold(Key::new().with("image 1").with(PAUSE_SOURCE), |key, applet| key.with(applet));
    let busybox = busybox::get(arch)?;
    let dir = store::entry("image", &arch.name_of("images"), &key.with_entry(&busybox), |dir| {
        say(format_args!("making the pause and busybox images"));
        let pause = build_pause(arch, dir)?;
        let busybox = read(&busybox)?;
        let mut programs = vec![Entry::program("bin/busybox", &busybox)];
        programs.extend(APPLETS.iter().map(|name| Entry::link(format!("bin/{name}"), "busybox")));
        let images = [
            Image::new(arch, PAUSE, &[Entry::program("bin/pause", &pause)], &["/bin/pause"])?,
            Image::new(arch, BUSYBOX, &programs, &["/bin/sh"])?,
        ];
        let path = dir.join("images.tar");
        write(&images, File::create(&path)?).with_context(|| format!("cannot write {}", path.display()))
    })?;
    Ok(dir.join("images.tar"))
}

fn build_pause(arch: Arch, dir: &Path) -> Result<Vec<u8>> {
    let source = dir.join("pause.rs");
    let program = dir.join("pause");
    fs::write(&source, PAUSE_SOURCE).with_context(|| format!("cannot write {}", source.display()))?;
    cross::ensure(arch)?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-O", "-Cpanic=abort", "-Cstrip=symbols", "--target", &arch.target()]);
    rustc.args(cross::linker(arch).map(|linker| format!("-Clinker={linker}")));
    workspace::run(rustc.arg("-o").arg(&program).arg(&source))?;
    read(&program)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A file of an image.
struct Entry<'a> {
    path: String,
    content: Content<'a>,
}

enum Content<'a> {
    Program(&'a [u8]),
    Link(&'a str),
}

impl<'a> Entry<'a> {
    fn program(path: &str, bytes: &'a [u8]) -> Self {
        Self { path: path.to_owned(), content: Content::Program(bytes) }
    }

    fn link(path: String, to: &'a str) -> Self {
        Self { path, content: Content::Link(to) }
    }
}

/// An image of one layer.
struct Image {
    name: &'static str,
    config: Vec<u8>,
    layer: Vec<u8>,
}

impl Image {
    fn new(arch: Arch, name: &'static str, entries: &[Entry<'_>], command: &[&str]) -> Result<Self> {
        let layer = layer(entries).with_context(|| format!("cannot make the image {name}"))?;
        let config = json!({
            "architecture": arch.short(),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": { "Env": ["PATH=/bin"], "Cmd": command },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
            "history": [{ "created": "1970-01-01T00:00:00Z" }],
        });
        Ok(Self { name, config: config.to_string().into_bytes(), layer })
    }

    fn config_path(&self) -> String {
        format!("{}.json", digest(&self.config))
    }

    fn layer_path(&self) -> String {
        format!("{}/layer.tar", digest(&self.layer))
    }

    fn manifest(&self) -> Value {
        json!({ "Config": self.config_path(), "RepoTags": [self.name], "Layers": [self.layer_path()] })
    }
}

fn layer(entries: &[Entry<'_>]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        tar.append_data(&mut header, dir, io::empty())?;
    }
    for entry in entries {
        match entry.content {
            Content::Program(bytes) => append(&mut tar, &entry.path, 0o755, bytes)?,
            Content::Link(to) => {
                tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), &entry.path, to)?;
            }
        }
    }
    tar.into_inner()
}

fn write(images: &[Image], to: impl Write) -> io::Result<()> {
    let mut tar = tar::Builder::new(to);
    for image in images {
        append(&mut tar, &image.config_path(), 0o644, &image.config)?;
        append(&mut tar, &image.layer_path(), 0o644, &image.layer)?;
    }
    let manifest: Value = images.iter().map(Image::manifest).collect();
    append(&mut tar, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    tar.into_inner()?.flush()
}

fn append(tar: &mut tar::Builder<impl Write>, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(tar::EntryType::Regular, mode, bytes.len()), path, bytes)
}

/// Returns a header without time and owner, so that every build makes the same archive.
fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read as _;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().to_string_lossy().into_owned(), content);
        }
        files
    }

    /// containerd checks this on import: each name in the manifest is a file, and each layer has its digest.
    #[test]
    fn the_manifest_fits_the_files() {
        let entries = [Entry::program("bin/x", b"program"), Entry::link("bin/y".to_owned(), "x")];
        let image = |name, entries: &[_], command: &[_]| Image::new(Arch::Aarch64, name, entries, command);
        let images = [image("a:1", &entries, &["/bin/x"]).unwrap(), image("b:1", &[], &[]).unwrap()];
        let mut archive = Vec::new();
        write(&images, &mut archive).unwrap();
        let files = files(&archive);
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest.as_array().unwrap().len(), 2);
        for image in manifest.as_array().unwrap() {
            let config: Value = serde_json::from_slice(&files[image["Config"].as_str().unwrap()]).unwrap();
            let layer = &files[image["Layers"][0].as_str().unwrap()];
            assert_eq!(config["architecture"], "arm64");
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(layer)));
        }
    }

    #[test]
    fn a_layer_is_the_same_each_time() {
        let entries = [Entry::program("bin/x", b"program")];
        assert_eq!(layer(&entries).unwrap(), layer(&entries).unwrap());
    }
}
