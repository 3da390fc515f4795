//! Makes tar files whose bytes depend only on their content.

use super::{Release, files};
use crate::workspace;
use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// A file of an archive.
pub(super) struct Entry<'a> {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) bytes: &'a [u8],
}

/// Makes a tar file of root's files with the commit's time. It has no folders: unpacking makes them.
pub(super) fn tar(entries: &[Entry<'_>], made: u64) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for Entry { path, mode, bytes } in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(made);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, *bytes)?;
    }
    tar.into_inner()
}

/// Writes a gzip header without name and time.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gz.write_all(bytes)?;
    gz.finish()
}

/// Packs the program with its documents, and the files for an installation without a cluster.
pub(super) fn of_program(
    base: &str,
    program: &[u8],
    papers: &[(String, Vec<u8>)],
    release: &Release,
) -> Result<Vec<u8>> {
    const OURS: [(&str, &str); 5] = [
        ("CHANGELOG.md", "CHANGELOG.md"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("README.md", "README.md"),
        ("deploy/systemd/sandprobe.service", "sandprobe.service"),
    ];
    let mut all = papers.to_vec();
    for (from, to) in OURS {
        let path = workspace::root().join(from);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        all.push((to.to_owned(), bytes));
    }
    all.sort();
    let mut entries = vec![Entry { path: format!("{base}/sandprobe"), mode: 0o755, bytes: program }];
    entries.extend(all.iter().map(|(path, bytes)| Entry {
        path: format!("{base}/{path}"),
        mode: 0o644,
        bytes,
    }));
    Ok(gzip(&tar(&entries, release.made)?)?)
}

/// Packs all files of a folder below `base`, with the names of this release.
pub(super) fn of_folder(base: &str, folder: &Path, release: &Release) -> Result<Vec<u8>> {
    let files = release.origin.named(files(folder)?)?;
    let entries: Vec<_> = files
        .iter()
        .map(|(path, bytes)| Entry { path: format!("{base}/{path}"), mode: 0o644, bytes })
        .collect();
    Ok(gzip(&tar(&entries, release.made)?)?)
}

#[cfg(test)]
mod tests {
    use super::{Entry, gzip, tar};

    #[test]
    fn an_archive_is_the_same_each_time() {
        let entries = [Entry { path: "a/b".to_owned(), mode: 0o755, bytes: b"x" }];
        let made = |at| gzip(&tar(&entries, at).unwrap()).unwrap();
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
    }
}
