//! Finds a daemon's paths from the files that it has open: its database shows the root, and its listening
//! socket shows where to send requests. Both are right even if the configuration has changed since the start.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::source::host::{FILE, Folder, lines};

/// `__SO_ACCEPTCON` of linux/net.h: the socket listens.
const LISTENS: u32 = 1 << 16;
/// containerd serves ttrpc too, at the same path with this suffix.
const TTRPC_SUFFIX: &str = ".ttrpc";
/// The runtimes' socket for NRI plugins.
const NRI_SOCKET: &str = "nri.sock";

/// Returns the folder below which the process has the file `below` open.
pub(crate) fn folder_of(process: &Folder, below: &str) -> Option<PathBuf> {
    links(process).find_map(|link| {
        let folder = link.strip_suffix(below)?.strip_suffix('/')?;
        folder.starts_with('/').then(|| folder.into())
    })
}

/// Returns the socket for requests, if there is only one candidate.
pub(super) fn socket(process: &Folder) -> Option<PathBuf> {
    let own: BTreeSet<u64> = links(process).filter_map(|link| inode(&link)).collect();
    let sockets = process.folder("net").ok()?.read("unix", FILE).ok()?;
    let listens = lines(&sockets).filter_map(|line| listener(&line));
    let paths: BTreeSet<String> =
        listens.filter(|(inode, _)| own.contains(inode)).map(|(_, path)| path).collect();
    chosen(&paths).map(Into::into)
}

/// Returns the targets of its file descriptors.
fn links(process: &Folder) -> impl Iterator<Item = String> {
    let opened = process.folder("fd").and_then(|folder| Ok((folder.entries()?, folder))).ok();
    opened.into_iter().flat_map(|(found, folder)| {
        found.entries.into_iter().filter_map(move |entry| folder.link(&entry.name).ok())
    })
}

/// Parses `socket:[INODE]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Parses a line of `/proc/PID/net/unix` (proc_net_unix(5)): number, references, protocol, flags, type,
/// state, inode, path.
fn listener(line: &str) -> Option<(u64, String)> {
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let inode = fields.nth(2)?.parse().ok()?;
    let path = fields.next().filter(|path| path.starts_with('/'))?;
    (flags & LISTENS != 0).then(|| (inode, path.to_owned()))
}

fn chosen(paths: &BTreeSet<String>) -> Option<&str> {
    // containerd's socket, which has one for ttrpc beside it.
    if let Some(path) = paths.iter().find(|path| paths.contains(&format!("{path}{TTRPC_SUFFIX}"))) {
        return Some(path);
    }
    let mut rest =
        paths.iter().filter(|path| !path.ends_with(TTRPC_SUFFIX) && !Path::new(path).ends_with(NRI_SOCKET));
    let only = rest.next()?;
    rest.next().is_none().then_some(only.as_str())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::net::UnixListener, process};

    use proptest::prelude::*;

    use super::{Path, chosen, folder_of, inode, listener, socket};
    use crate::source::host::HostRoot;

    #[test]
    fn a_process_shows_what_it_has_open() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("database/meta.db");
        std::fs::create_dir(file.parent().expect("a parent")).expect("a directory");
        let _database = File::create(&file).expect("a file");
        let host = HostRoot::open("/".as_ref()).expect("the root");
        let this = host.folder(format!("/proc/{}", process::id())).expect("this process");
        assert_eq!(folder_of(&this, "database/meta.db").as_deref(), Some(place.path()));
        assert_eq!(folder_of(&this, "atabase/meta.db"), None);

        let at = place.path().join("runtime.sock");
        let _first = UnixListener::bind(&at).expect("a socket");
        let _second = UnixListener::bind(place.path().join("runtime.sock.ttrpc")).expect("a socket");
        let _other = UnixListener::bind(place.path().join("debug.sock")).expect("a socket");
        assert_eq!(socket(&this), Some(at));
    }

    #[test]
    fn one_that_listens_is_told_by_its_flags() {
        let line =
            |flags: &str| format!("ffff888003b2c000: 00000002 00000000 {flags} 0001 01 12345 /run/x.sock");
        assert_eq!(listener(&line("00010000")), Some((12345, "/run/x.sock".to_owned())));
        assert_eq!(listener(&line("00000000")), None);
        assert_eq!(listener("Num       RefCount Protocol Flags    Type St Inode Path"), None);
        assert_eq!(listener("ffff888003b2c000: 00000002 00000000 00010000 0001 01 12345 @abstract"), None);
        assert_eq!(inode("socket:[77]"), Some(77));
        assert_eq!(inode("pipe:[77]"), None);
    }

    #[test]
    fn of_several_sockets_none_is_guessed() {
        let of = |paths: &[&str]| chosen(&paths.iter().map(ToString::to_string).collect()).map(str::to_owned);
        assert_eq!(of(&["/run/crio/crio.sock", "/run/nri/nri.sock"]).as_deref(), Some("/run/crio/crio.sock"));
        assert_eq!(of(&["/a/c.sock", "/a/c.sock.ttrpc", "/a/debug.sock"]).as_deref(), Some("/a/c.sock"));
        assert_eq!(of(&["/a/c.sock", "/a/debug.sock"]), None);
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text: String) {
            listener(&text);
            inode(&text);
            chosen(&[text.clone()].into_iter().collect()).map(Path::new);
        }
    }
}
