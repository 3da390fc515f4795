//! Binds the server's listeners: a network address, and a Unix socket for the commands on this node.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process,
};

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("cannot listen on {address}: {why}; choose another with --listen")]
    Address { address: SocketAddr, why: io::Error },
    #[error("cannot listen on {path}: {why}; choose another with --socket", path = path.display())]
    Socket { path: PathBuf, why: io::Error },
    #[error("another sandprobe answers on {path}: end it, or choose another with --socket", path = path.display())]
    Taken { path: PathBuf },
    #[error("{path} exists and is not a socket: remove it, or choose another with --socket", path = path.display())]
    Foreign { path: PathBuf },
}

impl ListenError {
    /// Whether another process, which may end, holds the address or the socket.
    pub(crate) fn is_taken(&self) -> bool {
        match self {
            Self::Address { why, .. } => why.kind() == io::ErrorKind::AddrInUse,
            Self::Taken { .. } => true,
            Self::Socket { .. } | Self::Foreign { .. } => false,
        }
    }
}

/// Binds an address.
pub(crate) fn address(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let bound =
        TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.map_err(|why| ListenError::Address { address, why })
}

/// A bound socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// The device and inode of the file, to recognize it; `None` if the file stays.
    file: Option<(u64, u64)>,
}

impl Socket {
    /// Binds a socket at `path` that only its owner may use. A dead socket there is replaced.
    pub(crate) fn bind(path: &Path) -> Result<Self, ListenError> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|why| ListenError::Socket { path: path.to_owned(), why })?;
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ListenError::Foreign { path: path.to_owned() });
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(ListenError::Taken { path: path.to_owned() });
            }
            Ok(_) | Err(_) => {}
        }
        let bound = PendingSocket::bind(path).and_then(|mut pending| pending.place());
        bound.map_err(|why| ListenError::Socket { path: path.to_owned(), why })
    }

    /// The path of the socket.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file in place, because the process will not be able to remove it.
    pub(crate) fn leave(&mut self) {
        self.file = None;
    }

    /// The listener; `None` once it was taken.
    pub(super) fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

/// A socket that only its owner may use, still under a temporary name. So the file at its path never has
/// another mode, and a client finds the old socket or the new one.
#[derive(Debug)]
pub(super) struct PendingSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// The temporary path.
    new: PathBuf,
    file: (u64, u64),
}

impl PendingSocket {
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let new = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), process::id()));
        fs::remove_file(&new).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let listener = UnixListener::bind(&new)?;
        let mut pending = Self { listener: Some(listener), path: path.to_owned(), new, file: (0, 0) };
        pending.prepare()?;
        Ok(pending)
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        fs::set_permissions(&self.new, Permissions::from_mode(0o600))?;
        let found = fs::symlink_metadata(&self.new)?;
        self.file = (found.dev(), found.ino());
        Ok(())
    }

    /// The final path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the socket to its final path.
    pub(super) fn place(&mut self) -> io::Result<Socket> {
        fs::rename(&self.new, &self.path)?;
        Ok(Socket { listener: self.listener.take(), path: self.path.clone(), file: Some(self.file) })
    }
}

impl Drop for PendingSocket {
    fn drop(&mut self) {
        if self.listener.is_some() {
            // The file is this agent's and is not needed.
            fs::remove_file(&self.new).ok();
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(file) = self.file else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|it| (it.dev(), it.ino()) == file) {
            // If it cannot be removed, the next agent replaces it.
            fs::remove_file(&self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::PermissionsExt as _, net::UnixListener},
        path::Path,
    };

    use super::{ListenError, Socket};

    #[test]
    fn a_socket_is_its_owner_s_alone_and_goes_with_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run/sandprobe/x.sock");
        let socket = Socket::bind(&path).expect("free");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("a folder").count(), 1);
        let again = Socket::bind(&path).expect_err("taken");
        assert!(matches!(again, ListenError::Taken { .. }), "{again}");
        drop(socket);
        assert!(!path.exists());
        let mut socket = Socket::bind(&path).expect("free");
        socket.leave();
        drop(socket);
        assert!(path.exists());
    }

    #[test]
    fn a_dead_one_s_is_replaced_and_another_s_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.sock");
        drop(UnixListener::bind(&path).expect("free"));
        assert!(path.exists());
        let socket = Socket::bind(&path).expect("nobody listens");
        // Another socket was put in its place.
        fs::remove_file(&path).expect("it is there");
        let other = UnixListener::bind(&path).expect("free");
        drop(socket);
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).expect("it is there");
        fs::write(&path, "precious").expect("a file");
        assert!(matches!(Socket::bind(&path), Err(ListenError::Foreign { .. })));
        assert_eq!(fs::read(&path).expect("it is there"), b"precious");
    }
}
