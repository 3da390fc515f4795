//! HTTP/1.1 over TLS, with one thread for each connection.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{Shared, object::Answer};

pub(super) const AUTHORITY: &str = include_str!("../../../probe-user/src/sink/serve/tls/ca.pem");
const CERTIFICATE: &str = include_str!("../../../probe-user/src/sink/serve/tls/server.pem");
const KEY: &str = include_str!("../../../probe-user/src/sink/serve/tls/server.key");

/// The longest body, bytes (`DefaultMaxRequestSizeBytes` of the API server).
const LONGEST: usize = 3 << 20;

/// The result of a request.
pub(super) enum Reply {
    Answer(Answer),
    /// A page that says that nothing is here.
    Missing,
    /// An answer that continues until the client disconnects.
    Endless,
    Never,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path without the query.
    pub(super) path: String,
    headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub(super) fn tls() -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(CERTIFICATE.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

/// Answers requests until the client disconnects.
pub(super) fn serve(stream: TcpStream, tls: Arc<ServerConfig>, shared: &Shared) -> Result<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(tls)?, stream));
    while let Some(request) = read(&mut stream)? {
        let (status, kind, body) = match shared.answer(&request) {
            Reply::Answer(answer) => (answer.status, "application/json", answer.body.to_string()),
            Reply::Missing => (404, "text/html", "<html>default backend - 404</html>".to_owned()),
            Reply::Endless => return flood(stream.get_mut()),
            Reply::Never => {
                // The connection stays open.
                thread::sleep(Duration::MAX);
                bail!("it hung");
            }
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        stream.get_mut().write_all((head + &body).as_bytes())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

/// Sends a text until the client disconnects.
fn flood(stream: &mut impl Write) -> Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 -\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    let mut chunk = b"10000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 16), b' ');
    chunk.extend(b"\r\n");
    loop {
        stream.write_all(&chunk)?;
    }
}

fn read(stream: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>) -> Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().context("no method")?, words.next().context("no target")?);
    let (method, path) = (method.to_owned(), target.split('?').next().unwrap_or(target).to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |text| text.parse::<usize>())?;
    if length > LONGEST {
        bail!("a body of {length} bytes");
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body }))
}
