//! Asks a container runtime over its socket for its sandboxes. This is the only request, and it changes nothing.
//!
//! The few messages of CRI v1 are written by hand, so that the build needs no `protoc`. Their field numbers are those
//! of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, which the API's rules freeze.

use std::{io, path::Path, time::Duration};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use prost::Message;
use tokio::{net::UnixStream, runtime, time::timeout};
use tonic::{
    Code, Request,
    client::Grpc,
    transport::{Endpoint, Uri},
};
use tonic_prost::ProstCodec;

/// A runtime answers in milliseconds. After this time the question is given up.
const DEADLINE: Duration = Duration::from_secs(2);
/// The longest answer that is taken, bytes. The kubelet's limit is the same.
const LONGEST: usize = 16 << 20;
const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

#[derive(Clone, PartialEq, Message)]
struct ListRequest {}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

/// Why there is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListError {
    /// No process listens at the socket.
    Nobody,
    /// This program may not or cannot connect. The runtime may exist.
    Unreachable(Errno),
    /// A server answers that is not a CRI runtime.
    OtherService,
    /// It did not answer in time, or answered with an error or with too much.
    Unanswered,
}

/// All sandboxes, stopped ones included.
pub(super) fn list(socket: &Path) -> Result<Vec<Sandbox>, ListError> {
    // This is not called in the agent's async runtime, so it may block.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|_exhausted| ListError::Unanswered)?;
    let answer = runtime.block_on(async { timeout(DEADLINE, ask(socket)).await });
    answer.map_err(|_elapsed| ListError::Unanswered)?
}

async fn ask(socket: &Path) -> Result<Vec<Sandbox>, ListError> {
    let stream = UnixStream::connect(socket).await.map_err(|why| refusal(&why))?;
    // The one connection, which is open already: whichever address tonic asks for, it gets this one, once.
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let endpoint = Endpoint::from_static("http://cri");
    let channel = endpoint.connect_with_connector(connector).await.map_err(|_error| ListError::Unanswered)?;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(LONGEST);
    grpc.ready().await.map_err(|_error| ListError::Unanswered)?;
    let codec = ProstCodec::<ListRequest, List>::default();
    let path = PathAndQuery::from_static(LIST);
    match grpc.unary(Request::new(ListRequest {}), path, codec).await {
        Ok(answer) => Ok(answer.into_inner().items),
        Err(status) if status.code() == Code::Unimplemented => Err(ListError::OtherService),
        Err(_status) => Err(ListError::Unanswered),
    }
}

/// Why connect(2) failed.
fn refusal(why: &io::Error) -> ListError {
    match why.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ENOENT) => ListError::Nobody,
        // The socket's backlog is full.
        Some(Errno::EAGAIN) | None => ListError::Unanswered,
        Some(other) => ListError::Unreachable(other),
    }
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

    use nix::unistd::{Uid, setfsuid};
    use prost::Message as _;

    use super::{DEADLINE, Errno, List, ListError, Metadata, list, refusal};

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

    /// A `ListPodSandboxResponse` of cri-api in its wire format. Attempt, state, time and a label are skipped.
    #[test]
    fn an_answer_is_read_by_its_field_numbers() {
        let metadata = b"\x0a\x05web-0\x12\x01u\x1a\x07default\x20\x01";
        let rest = b"\x18\x01\x20\x07\x2a\x06\x0a\x01a\x12\x01b";
        let bytes = [&b"\x0a\x27\x0a\x02s1\x12\x15"[..], metadata, rest].concat();
        let List { items } = List::decode(&*bytes).expect("an answer");
        let told: Vec<_> = items.into_iter().map(|it| (it.id, it.metadata.unwrap_or_default())).collect();
        let pod = Metadata { name: "web-0".to_owned(), uid: "u".to_owned(), namespace: "default".to_owned() };
        assert_eq!(told, [("s1".to_owned(), pod)]);
    }
}
