//! Asks container runtimes over their sockets, and other daemons that speak gRPC there. No question changes
//! anything, and no daemon has to exist.

mod client;
pub mod detached;
pub(crate) mod follow;
mod message;
pub(crate) mod name;
mod session;
mod statuses;

use std::path::Path;

use bytes::Bytes;
use prost::Message as _;
use tokio::runtime;

pub(super) use client::{Call, ListError};
use client::{Client, DEADLINE, MAX_MESSAGE_BYTES};
pub(super) use message::Sandbox;
use message::Sandboxes;

/// Lists all sandboxes, stopped ones included.
pub(super) fn list(socket: &Path) -> Result<Vec<Sandbox>, ListError> {
    let answer = ask(socket, Call::ListPodSandbox, MAX_MESSAGE_BYTES)?;
    Sandboxes::decode(answer).map(|it| it.items).map_err(|_error| ListError::Unanswered)
}

/// Asks a question without parameters. `max_bytes`: the longest answer that is accepted.
pub(super) fn ask(socket: &Path, call: Call, max_bytes: usize) -> Result<Bytes, ListError> {
    // This is not called in the agent's async runtime, so it may block.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|_exhausted| ListError::Unanswered)?;
    runtime.block_on(async {
        let mut client = Client::connect(socket, max_bytes).await?;
        client.unary(DEADLINE, call, Vec::new()).await
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        io::{self, Write as _},
        os::unix::{fs::PermissionsExt as _, net::UnixListener},
        thread,
        time::Instant,
    };

    use nix::{
        errno::Errno,
        unistd::{Uid, setfsuid},
    };
    use prost::Message as _;

    use super::{DEADLINE, ListError, Sandboxes, client::refusal, list, message::Metadata};

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("runtime.sock");
        assert_eq!(list(&path), Err(ListError::Nobody));
        let listener = UnixListener::bind(&path).expect("a socket");
        let start = Instant::now();
        assert_eq!(list(&path), Err(ListError::Unanswered));
        assert!(start.elapsed() >= DEADLINE);
        drop(listener);
        assert_eq!(list(&path), Err(ListError::Nobody));
    }

    #[test]
    fn who_may_not_be_asked_may_be_there() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("runtime.sock");
        let _listener = UnixListener::bind(&path).expect("a socket");
        fs::set_permissions(&path, Permissions::from_mode(0o0)).expect("a mode");
        // A thread without root's override of file modes (credentials(7)).
        let asked = thread::spawn(move || {
            setfsuid(Uid::from_raw(65534));
            list(&path)
        });
        assert_eq!(asked.join().expect("no panic"), Err(ListError::Unreachable(Errno::EACCES)));
        assert_eq!(
            refusal(&io::Error::from_raw_os_error(Errno::EPERM as i32)),
            ListError::Unreachable(Errno::EPERM)
        );
    }

    #[test]
    fn noise_is_no_answer() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("runtime.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // The client may have gone before all is written.
            stream.write_all(&[0xff; 4096]).ok();
        });
        assert_eq!(list(&path), Err(ListError::Unanswered));
        server.join().expect("no panic");
    }

    /// A `ListPodSandboxResponse` of cri-api in its wire format. A label is skipped.
    #[test]
    fn an_answer_is_read_by_its_field_numbers() {
        let metadata = b"\x0a\x05web-0\x12\x01u\x1a\x07default\x20\x01";
        let rest = b"\x18\x01\x20\x07\x2a\x06\x0a\x01a\x12\x01b";
        let bytes = [&b"\x0a\x27\x0a\x02s1\x12\x15"[..], metadata, rest].concat();
        let Sandboxes { items } = Sandboxes::decode(&*bytes).expect("an answer");
        let told: Vec<_> = items.into_iter().map(|it| (it.id, it.metadata.unwrap_or_default())).collect();
        let pod = Metadata {
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
            namespace: "default".to_owned(),
            attempt: 1,
        };
        assert_eq!(told, [("s1".to_owned(), pod)]);
    }
}
