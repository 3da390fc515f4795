//! Opens a plain file for reading at any offset, such as an executable or a log. The caller bounds how much
//! it reads.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{self, AtFlags, OFlag},
    sys::stat::{self, Mode, SFlag},
};

use super::{Folder, HostRoot, ReadError, is, single};

const PLAIN: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);
/// The kernel's own limit (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

impl HostRoot {
    /// Opens a plain file by its path on the node. Links are resolved below the node's root.
    pub fn plain(&self, path: impl AsRef<Path>) -> Result<File, ReadError> {
        let (folder, name) = self.behind_links(path)?;
        folder.plain(&name)
    }

    /// Returns the folder and the name of the file at this path of the node, after following links.
    pub(crate) fn behind_links(&self, path: impl AsRef<Path>) -> Result<(Folder, String), ReadError> {
        let mut path: PathBuf = path.as_ref().to_owned();
        for _ in 0..=MAX_LINKS {
            let parent = path.parent().ok_or(ReadError::NotPlain)?;
            let name = path.file_name().and_then(|name| name.to_str()).ok_or(ReadError::NotPlain)?;
            let folder = self.folder(parent)?;
            match folder.link(name) {
                // The target is relative to the link's folder. The path is then resolved again from the
                // start, links included.
                Ok(target) => path = parent.join(target),
                Err(ReadError::Unreadable(Errno::EINVAL)) => return Ok((folder, name.to_owned())),
                Err(why) => return Err(why),
            }
        }
        Err(ReadError::NotPlain)
    }
}

impl Folder {
    /// Opens a plain file in the folder; a link is refused.
    pub(crate) fn plain(&self, name: &str) -> Result<File, ReadError> {
        self.enter(name)?;
        open(&self.fd, single(name)?).map(File::from)
    }

    /// Reads an open plain file of the folder again, at most `limit` bytes from its start.
    pub(crate) fn reread(&self, name: &str, file: &File, limit: usize) -> Result<Vec<u8>, ReadError> {
        self.enter(name)?;
        let mut bytes = vec![0; limit];
        let mut len = 0;
        while let Some(room) = bytes.get_mut(len..).filter(|room| !room.is_empty()) {
            match file.read_at(room, u64::try_from(len).unwrap_or(u64::MAX)) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

pub(super) fn open(folder: &OwnedFd, name: &str) -> Result<OwnedFd, ReadError> {
    // The type is checked before the open, because opening a device can have effects.
    let about = stat::fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    if !is(SFlag::S_IFREG, &about) {
        return Err(ReadError::NotPlain);
    }
    Ok(fcntl::openat(folder, name, PLAIN, Mode::empty())?)
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        // An error without a number comes from the content, not from reading.
        error.raw_os_error().map_or(Self::Malformed, |number| Errno::from_raw(number).into())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _, os::unix::fs::symlink};

    use crate::source::host::{HostRoot, ReadError};

    #[test]
    fn links_to_a_file_are_followed_below_the_root() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("store/v1/bin")).expect("directories");
        fs::create_dir_all(at("usr/bin")).expect("directories");
        fs::write(at("store/v1/bin/tool"), "tool").expect("a file");
        symlink("v1", at("store/current")).expect("a link");
        symlink("/store/current/bin", at("tools")).expect("a link");
        symlink("../../tools/tool", at("usr/bin/near")).expect("a link");
        symlink("/usr/bin/near", at("usr/bin/far")).expect("a link");
        // `..` leads up from the folder's real place: to /store/v1/tool-2, not to /tool-2.
        symlink("../tool-2", at("store/v1/bin/up")).expect("a link");
        fs::write(at("store/v1/tool-2"), "second").expect("a file");
        symlink("loop", at("loop")).expect("a link");
        symlink("/etc/passwd", at("out")).expect("a link");
        symlink("../../../../../../etc/passwd", at("above")).expect("a link");
        symlink("store", at("folder")).expect("a link");
        let host = HostRoot::open(root.path()).expect("the root");
        let text = |path: &str| {
            let mut text = String::new();
            host.plain(path)?.read_to_string(&mut text)?;
            Ok::<_, ReadError>(text)
        };
        for path in ["/store/v1/bin/tool", "/usr/bin/near", "/usr/bin/far", "/tools/tool"] {
            assert_eq!(text(path).as_deref(), Ok("tool"), "{path}");
        }
        assert_eq!(text("/tools/up").as_deref(), Ok("second"));
        for path in ["/out", "/above", "/usr/bin/gone"] {
            assert_eq!(text(path), Err(ReadError::Absent), "{path}");
        }
        for path in ["/loop", "/folder", "/store", "/", "/store/.."] {
            assert_eq!(text(path), Err(ReadError::NotPlain), "{path}");
        }
    }
}
