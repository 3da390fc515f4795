//! A connection to a daemon at its socket. Each question has a deadline.

use std::{io, path::Path, time::Duration};

use bytes::Bytes;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use prost::Message;
use tokio::net::UnixStream;
use tonic::{
    Code, Request, Status, Streaming,
    body::Body,
    client::Grpc,
    transport::{Channel, Endpoint, Uri},
};
use tower::util::MapResponse;

use super::message::{Empty, Event};
use crate::{
    grpc::{Checked, Raw, checked},
    source::task::patience,
};

/// A runtime answers in milliseconds. After this time a question is given up.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// The longest message that is accepted, bytes. The kubelet's limit is the same.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum ListError {
    /// No process listens at the socket.
    Nobody,
    /// This program may not or cannot connect. The runtime may exist.
    Unreachable(Errno),
    /// The server does not have this call, so it is another daemon.
    OtherService,
    /// It did not answer in time, or answered with an error or with too much.
    Unanswered,
}

/// The calls that are made. None of them changes anything.
#[derive(Clone, Copy, Debug)]
pub(in crate::source) enum Call {
    Version,
    ListPodSandbox,
    ListContainers,
    ContainerStatus,
    GetContainerEvents,
    /// A call of UCloud's ipamd. The others are those of CRI.
    ListPodNetworkRecord,
}

impl Call {
    fn path(self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Self::Version => "/runtime.v1.RuntimeService/Version",
            Self::ListPodSandbox => "/runtime.v1.RuntimeService/ListPodSandbox",
            Self::ListContainers => "/runtime.v1.RuntimeService/ListContainers",
            Self::ContainerStatus => "/runtime.v1.RuntimeService/ContainerStatus",
            Self::GetContainerEvents => "/runtime.v1.RuntimeService/GetContainerEvents",
            Self::ListPodNetworkRecord => "/rpc.CNIIpam/ListPodNetworkRecord",
        })
    }
}

/// A channel whose answers are checked.
type CheckedChannel = MapResponse<Channel, fn(http::Response<Body>) -> Checked<Body>>;

/// A clone uses the same connection.
#[derive(Clone, Debug)]
pub(super) struct Client(Grpc<CheckedChannel>);

impl Client {
    pub(super) async fn connect(socket: &Path, max_bytes: usize) -> Result<Self, ListError> {
        in_time(DEADLINE, async {
            let stream = UnixStream::connect(socket).await.map_err(|why| refusal(&why))?;
            // The connection is open already. tonic gets it once, for any address.
            let mut stream = Some(TokioIo::new(stream));
            let connector = tower::service_fn(move |_: Uri| {
                let stream = stream.take();
                async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
            });
            let endpoint = Endpoint::from_static("http://cri");
            let channel =
                endpoint.connect_with_connector(connector).await.map_err(|_error| ListError::Unanswered)?;
            let channel: CheckedChannel = MapResponse::new(channel, checked);
            Ok(Self(Grpc::new(channel).max_decoding_message_size(max_bytes)))
        })
        .await
    }

    pub(super) async fn ask<A: Message + Default>(
        &mut self,
        call: Call,
        question: impl Message,
    ) -> Result<A, ListError> {
        self.ask_for(DEADLINE, call, question).await
    }

    /// Asks a question that the runtime has to answer within `deadline`.
    pub(super) async fn ask_for<A: Message + Default>(
        &mut self,
        deadline: Duration,
        call: Call,
        question: impl Message,
    ) -> Result<A, ListError> {
        let answer = self.unary(deadline, call, question.encode_to_vec()).await?;
        A::decode(answer).map_err(|_error| ListError::Unanswered)
    }

    pub(super) async fn unary(
        &mut self,
        deadline: Duration,
        call: Call,
        question: Vec<u8>,
    ) -> Result<Bytes, ListError> {
        in_time(deadline, async {
            self.0.ready().await.map_err(|_error| ListError::Unanswered)?;
            let answer = self.0.unary(Request::new(question), call.path(), Raw).await;
            answer.map(tonic::Response::into_inner).map_err(|status| refused(&status))
        })
        .await
    }

    /// Opens a stream of events that begins now. A runtime may send its headers only with the first event, so
    /// this can take any time.
    pub(super) async fn events(mut self) -> Result<Events, ListError> {
        self.0.ready().await.map_err(|_error| ListError::Unanswered)?;
        let path = Call::GetContainerEvents.path();
        let answer = self.0.server_streaming(Request::new(Empty {}.encode_to_vec()), path, Raw).await;
        answer.map(|answer| Events(answer.into_inner())).map_err(|status| refused(&status))
    }
}

/// A stream of events.
pub(super) struct Events(Streaming<Bytes>);

impl Events {
    /// Returns the next event, or why the stream ended.
    pub(super) async fn next(&mut self) -> Result<Event, ListError> {
        match self.0.message().await {
            Ok(Some(bytes)) => Event::decode(bytes).map_err(|_error| ListError::Unanswered),
            Ok(None) => Err(ListError::Nobody),
            Err(status) => Err(refused(&status)),
        }
    }
}

async fn in_time<A>(
    deadline: Duration,
    answer: impl Future<Output = Result<A, ListError>>,
) -> Result<A, ListError> {
    patience::within(deadline, answer).await.unwrap_or(Err(ListError::Unanswered))
}

pub(super) fn refused(status: &Status) -> ListError {
    if status.code() == Code::Unimplemented { ListError::OtherService } else { ListError::Unanswered }
}

/// Returns why connect(2) failed.
pub(super) fn refusal(why: &io::Error) -> ListError {
    match why.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ENOENT) => ListError::Nobody,
        // The socket's backlog is full.
        Some(Errno::EAGAIN) | None => ListError::Unanswered,
        Some(other) => ListError::Unreachable(other),
    }
}
