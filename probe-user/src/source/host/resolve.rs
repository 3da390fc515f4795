//! Opens a directory below a root, as a process with that root directory would.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::{
    Result,
    errno::Errno,
    fcntl::{self, OFlag, OpenHow, ResolveFlag},
    sys::stat::Mode,
};

use super::DIRECTORY;

/// The kernel's own limit (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;
/// The kernel gives up on `RESOLVE_IN_ROOT` if something is renamed or mounted meanwhile, so it is tried
/// again.
const TRIES: u32 = 16;

/// openat2(2) was refused: by Linux before 5.6, by a container's seccomp profile that does not know the call,
/// or by the agent's own filter, which cannot see whether the call would open a file for writing.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

pub(super) fn directory(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    if IS_REFUSED.load(Ordering::Relaxed) {
        return by_hand(root.as_fd(), path);
    }
    let how = OpenHow::new()
        .flags(DIRECTORY.difference(OFlag::O_NOFOLLOW))
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 0..TRIES {
        match fcntl::openat2(root, path, how) {
            Err(Errno::EAGAIN) => {}
            Err(Errno::ENOSYS | Errno::EPERM) => {
                IS_REFUSED.store(true, Ordering::Relaxed);
                break;
            }
            done => return done,
        }
    }
    by_hand(root.as_fd(), path)
}

/// Resolves one component at a time without following links. The target of a link is then resolved in the
/// same way.
fn by_hand(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let mut ahead: VecDeque<OsString> = parts(path.as_os_str()).collect();
    // The directories from the root to here, so that `..` goes back and never above the root.
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            way.pop();
            continue;
        }
        let here = way.last().map_or(root, |fd| fd.as_fd());
        match fcntl::openat(here, part.as_os_str(), DIRECTORY, Mode::empty()) {
            // It is not a directory, so it may be a link.
            Err(Errno::ENOTDIR | Errno::ELOOP) => {}
            opened => {
                way.push(opened?);
                continue;
            }
        }
        let target = match fcntl::readlinkat(here, part.as_os_str()) {
            Err(Errno::EINVAL) => return Err(Errno::ENOTDIR),
            target => target?,
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        if target.as_bytes().starts_with(b"/") {
            way.clear();
        }
        for part in parts(&target).rev() {
            ahead.push_front(part);
        }
    }
    match way.pop() {
        Some(found) => Ok(found),
        None => fcntl::openat(root, ".", DIRECTORY, Mode::empty()),
    }
}

fn parts(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.as_bytes().split(|byte| *byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(|part| OsStr::from_bytes(part).to_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{
            fd::{AsFd as _, OwnedFd},
            unix::fs::symlink,
        },
        path::Path,
    };

    use nix::{Result, sys::stat::fstat};

    use super::{by_hand, directory};

    #[test]
    fn both_ways_lead_to_the_same_place() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b/c")).expect("directories");
        fs::write(at("file"), "").expect("a file");
        symlink("/a/b", at("absolute")).expect("a link");
        symlink("../../a", at("a/relative")).expect("a link");
        symlink("../../../../a/../a/b/", at("a/b/up")).expect("a link");
        symlink("b2", at("b1")).expect("a link");
        symlink("b1", at("b2")).expect("a link");
        symlink("/etc", at("out")).expect("a link");
        let root = OwnedFd::from(fs::File::open(root.path()).expect("the root"));
        let inode = |fd: Result<OwnedFd>| fd.and_then(|fd| Ok(fstat(&fd)?.st_ino));
        for path in [
            "/",
            "",
            ".",
            "a",
            "/a/b/c",
            "a/../a/b",
            "../../a",
            "absolute/c",
            "a/relative/b",
            "a/b/up/c",
            "b1",
            "out",
            "file",
            "file/x",
            "gone",
            "a/gone/b",
            "absolute/../..",
            "//a///b/.",
        ] {
            let quick = match path {
                "" => directory(&root, Path::new(".")),
                path => directory(&root, Path::new(path)),
            };
            assert_eq!(inode(quick), inode(by_hand(root.as_fd(), Path::new(path))), "{path}");
        }
    }
}
