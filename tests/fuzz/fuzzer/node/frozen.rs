//! The files of the frozen nodes as inputs.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{FILE, FILES};

/// Returns the files of each frozen node whose path from the node's root is `wanted`, in as few inputs as
/// possible.
pub(super) fn seeds(wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let nodes = Path::new(crate::DATA).join("hosts");
    let mut seeds = Vec::new();
    for node in entries(&nodes).into_iter().filter(|path| path.is_dir()) {
        let mut files = Vec::new();
        walk(&node, &node, &wanted, &mut files);
        seeds.extend(files.chunks(FILES).map(<[_]>::concat));
    }
    assert!(!seeds.is_empty(), "no frozen node has such files");
    seeds
}

fn walk(node: &Path, folder: &Path, wanted: &impl Fn(&str) -> bool, files: &mut Vec<Vec<u8>>) {
    for path in entries(folder) {
        let kind = fs::symlink_metadata(&path).expect("a file").file_type();
        let name = path.strip_prefix(node).expect("it is below").to_str().expect("text");
        if kind.is_dir() {
            walk(node, &path, wanted, files);
        } else if wanted(name) {
            let link = if kind.is_symlink() { fs::read_link(&path).ok() } else { None };
            let target = link.map(|to| [b" -> ", to.as_os_str().as_bytes()].concat()).unwrap_or_default();
            let content = if kind.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
            if content.len() <= FILE {
                files.push([b"== ", name.as_bytes(), &target, b"\n", &content, b"\n"].concat());
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    paths
}
