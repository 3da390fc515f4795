//! An ipamd of UCloud for tests: gRPC at a Unix socket, with the messages of its `rpc/ipamd.proto`. The unit
//! tests of its reader use this file too.

use std::{convert::Infallible, future::ready, path::Path, thread};

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixListener, runtime};

/// `PodNetwork`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodNetwork {
    #[prost(string, tag = "1")]
    pub(super) pod_name: String,
    #[prost(string, tag = "2")]
    pub(super) pod_ns: String,
    #[prost(string, tag = "3")]
    pub(super) pod_uid: String,
    #[prost(string, tag = "4")]
    pub(super) sandbox_id: String,
    #[prost(string, tag = "5")]
    pub(super) net_ns: String,
    #[prost(string, tag = "6")]
    pub(super) vpc_ip: String,
    #[prost(string, tag = "7")]
    pub(super) vpc_id: String,
    #[prost(string, tag = "8")]
    pub(super) subnet_id: String,
    #[prost(string, tag = "11")]
    pub(super) mac_address: String,
    #[prost(bool, tag = "12")]
    pub(super) dedicated_uni: bool,
    #[prost(string, tag = "13")]
    pub(super) interface_id: String,
    #[prost(int64, tag = "15")]
    pub(super) create_time: i64,
    #[prost(int64, tag = "16")]
    pub(super) recycle_time: i64,
    #[prost(bool, tag = "17")]
    pub(super) recycled: bool,
}

impl PodNetwork {
    /// Makes the record of a sandbox whose address was fetched from the VPC at this second.
    pub(super) fn new(pod: &str, sandbox: &str, address: &str, create_time: i64) -> Self {
        Self {
            pod_name: pod.to_owned(),
            pod_ns: "shop".to_owned(),
            pod_uid: "11111111-2222-3333-4444-555555555555".to_owned(),
            sandbox_id: sandbox.to_owned(),
            net_ns: "/proc/812/ns/net".to_owned(),
            vpc_ip: address.to_owned(),
            vpc_id: "uvnet-a".to_owned(),
            subnet_id: "subnet-a".to_owned(),
            mac_address: "52:54:00:00:00:01".to_owned(),
            create_time,
            ..Self::default()
        }
    }
}

/// `ListPodNetworkRecordResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Records {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) networks: Vec<PodNetwork>,
}

/// What ipamd answers, each time.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Records(Records),
    /// A message that does not follow the protocol.
    Bytes(Vec<u8>),
    /// An error of gRPC.
    Error(u16),
    /// The message ends before its length.
    Cut,
    Never,
}

/// Listens at this path until the process ends.
pub(super) fn start(socket: &Path, answer: Answer) {
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    thread::spawn(move || runtime.block_on(serve(&listener, answer)));
}

async fn serve(listener: &std::os::unix::net::UnixListener, answer: Answer) {
    let listener = UnixListener::from_std(listener.try_clone().expect("a socket")).expect("a socket");
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| respond(answer.clone(), request));
        let connection =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { connection.await.ok() });
    }
}

async fn respond(
    answer: Answer,
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let question = request.into_body().collect().await.expect("a question").to_bytes();
    // An empty message behind gRPC's prefix.
    let is_known = path == "/rpc.CNIIpam/ListPodNetworkRecord" && *question == [0; 5];
    let (body, status) = match answer {
        _ if !is_known => (Vec::new(), 12),
        Answer::Records(records) => (framed(&records.encode_to_vec()), 0),
        Answer::Bytes(bytes) => (framed(&bytes), 0),
        Answer::Error(status) => (Vec::new(), status),
        Answer::Cut => (framed(&[0; 100])[..50].to_vec(), 0),
        Answer::Never => std::future::pending().await,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    let body = Full::new(Bytes::from(body)).with_trailers(ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).expect("a response"))
}

/// A message with gRPC's prefix: not compressed, and its length.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(message.len()).expect("a short message").to_be_bytes());
    bytes.extend(message);
    bytes
}
