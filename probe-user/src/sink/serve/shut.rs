//! Listeners whose port or socket another process holds at the start. An agent that was killed and hangs in
//! the kernel keeps its port and its socket for as long as it hangs. They are tried again each minute.
//!
//! The server's thread cannot make sockets. So all that it needs is made at the start: a socket for the port,
//! which is not bound yet, and the Unix socket under a temporary name.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::FileTypeExt as _,
    },
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, UnixAddr, bind, connect, listen,
        setsockopt, socket, sockopt,
    },
};

use super::listen::{PendingSocket, Socket};

/// The time between two tries.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The listeners that are tried again.
#[derive(Debug, Default)]
pub(crate) struct Shut {
    pub(crate) port: Option<ShutPort>,
    pub(crate) socket: Option<ShutSocket>,
}

impl Shut {
    pub(super) fn is_empty(&self) -> bool {
        self.port.is_none() && self.socket.is_none()
    }
}

/// A port that another process holds.
#[derive(Debug)]
pub(crate) struct ShutPort {
    address: SocketAddr,
    socket: OwnedFd,
}

impl ShutPort {
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Stream, flags, None)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        Ok(Self { address, socket })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on the port if nobody else does.
    pub(super) fn open(self) -> Result<TcpListener, Self> {
        let is_bound = match bind(self.socket.as_raw_fd(), &SockaddrStorage::from(self.address)) {
            // The last try bound the socket, but another process already listened.
            Ok(()) | Err(Errno::EINVAL) => true,
            Err(_taken) => false,
        };
        if is_bound && listen(&self.socket, Backlog::MAXCONN).is_ok() {
            Ok(self.socket.into())
        } else {
            Err(self)
        }
    }
}

/// The path of a socket that another process holds.
#[derive(Debug)]
pub(crate) struct ShutSocket {
    pending: PendingSocket,
    /// Its socket type differs from the server's, so that it never connects to the server.
    probe: OwnedFd,
}

impl ShutSocket {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let probe = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        Ok(Self { pending: PendingSocket::bind(path)?, probe })
    }

    pub(crate) fn path(&self) -> &Path {
        self.pending.path()
    }

    /// Takes the path if nobody listens there any longer.
    pub(super) fn open(mut self) -> Result<Socket, Self> {
        if self.is_taken() {
            return Err(self);
        }
        self.pending.place().map_err(|_failed| self)
    }

    /// Whether another process listens there, or the path is not a socket.
    fn is_taken(&self) -> bool {
        match fs::symlink_metadata(self.path()) {
            Ok(found) if found.file_type().is_socket() => {}
            Ok(_) => return true,
            Err(error) => return error.kind() != io::ErrorKind::NotFound,
        }
        let Ok(address) = UnixAddr::new(self.path()) else { return true };
        connect(self.probe.as_raw_fd(), &address) != Err(Errno::ECONNREFUSED)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Read as _,
        net::{TcpListener, TcpStream},
        os::unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    };

    use super::{ShutPort, ShutSocket};

    #[test]
    fn a_port_is_opened_once_it_is_free() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = other.local_addr().expect("an address");
        let shut = ShutPort::new(address).expect("a socket");
        let shut = shut.open().expect_err("taken");
        drop(other);
        let own = shut.open().expect("free");
        own.set_nonblocking(false).expect("a socket");
        let mut client = TcpStream::connect(address).expect("it listens");
        drop(own.accept().expect("a client"));
        assert_eq!(client.read(&mut [0]).ok(), Some(0));
    }

    #[test]
    fn a_socket_takes_the_path_once_nobody_listens_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.sock");
        let other = UnixListener::bind(&path).expect("free");
        let shut = ShutSocket::new(&path).expect("a socket beside it");
        let shut = shut.open().expect_err("taken");
        // The path is still taken, and the other process got no connection.
        other.set_nonblocking(true).expect("a socket");
        assert!(other.accept().is_err());
        let shut = shut.open().expect_err("taken");
        drop(other);
        let own = shut.open().expect("free");
        UnixStream::connect(&path).expect("it listens");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        drop(own);
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn what_is_no_socket_is_left_and_nothing_stays_beside_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.sock");
        fs::write(&path, "precious").expect("a file");
        let shut = ShutSocket::new(&path).expect("a socket beside it");
        drop(shut.open().expect_err("a file is there"));
        assert_eq!(fs::read(&path).expect("a file"), b"precious");
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }
}
