//! A registry with one image, on loopback: the part of the OCI distribution API that a runtime needs for a
//! pull. It uses plain HTTP, as runtimes do by default for a registry at a loopback address.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{
    clock,
    image::{Image, digest},
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const NAME: &str = "local/pulled";
const TAG: &str = "1";
/// The first byte of a TLS connection: the record type of a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// The number of pieces in which a layer is sent.
const PIECES: u32 = 10;

/// A running registry. It ends when it is dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    served: Arc<Mutex<Vec<Served>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct Served {
    pub path: String,
    /// Whether this is a download of the image's layer, and not only a question whether it exists.
    pub is_layer: bool,
    /// When the request came, and when the last byte of the answer was written; `CLOCK_BOOTTIME`, ns.
    pub asked: u64,
    pub done: u64,
}

/// The content at a path.
#[derive(Debug)]
struct Content {
    kind: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Registry {
    /// Listens at any port. Sending the layer takes this long.
    pub fn start(image: &Image, layer_takes: Duration) -> Result<Self> {
        let contents = Arc::new(contents(image)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen as a registry")?;
        let address = listener.local_addr()?;
        let (served, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (shared, is_over) = (Arc::clone(&served), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (contents, shared) = (Arc::clone(&contents), Arc::clone(&shared));
                thread::spawn(move || {
                    // A client that disconnects gets no answer.
                    if let Ok(Some(it)) = serve(&stream, &contents, layer_takes) {
                        lock(&shared).push(it);
                    }
                });
            }
        });
        Ok(Self { address, served, ends, thread: Some(thread) })
    }

    /// Returns the image's name, by which a runtime finds it here.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{NAME}:{TAG}", self.address)
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        lock(&self.served).clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The thread waits for a connection.
        TcpStream::connect(self.address).ok();
        self.thread.take().map(|thread| thread.join().ok());
    }
}

fn lock(served: &Mutex<Vec<Served>>) -> MutexGuard<'_, Vec<Served>> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the image as blobs, and its manifest by name and by digest.
fn contents(image: &Image) -> Result<BTreeMap<String, Content>> {
    let (layer, configuration) = image.parts()?;
    let configuration = configuration.into_bytes();
    let describe =
        |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": describe(CONFIGURATION, &configuration),
        "layers": [describe(LAYER, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let blob = |bytes: &[u8]| format!("/v2/{NAME}/blobs/{}", digest(bytes));
    let manifests = [TAG.to_owned(), digest(&manifest)].map(|name| format!("/v2/{NAME}/manifests/{name}"));
    let by_name = manifests.map(|path| (path, MANIFEST, manifest.clone()));
    let blobs = [(blob(&configuration), CONFIGURATION, configuration), (blob(&layer), LAYER, layer)];
    let all = by_name.into_iter().chain(blobs);
    Ok(all.map(|(path, kind, bytes)| (path, Content { kind, digest: digest(&bytes), bytes })).collect())
}

/// Whether the client tries TLS first. An answer in plain HTTP makes it try again without TLS.
fn is_tls(mut stream: &TcpStream) -> Result<bool> {
    let mut begin = [0; 4096];
    stream.peek(&mut begin)?;
    let is_tls = begin.first() == Some(&HANDSHAKE);
    if is_tls {
        let _hello = stream.read(&mut begin)?;
        write!(stream, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    }
    Ok(is_tls)
}

/// Answers one request and ends the connection. None: the path does not exist.
fn serve(
    stream: &TcpStream,
    contents: &BTreeMap<String, Content>,
    layer_takes: Duration,
) -> Result<Option<Served>> {
    let asked = clock::boot_ns()?;
    if is_tls(stream)? {
        return Ok(None);
    }
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().context("no request")??;
    while !lines.next().context("no end of the headers")??.is_empty() {}
    let mut words = request.split(' ');
    let (method, path) = words.next().zip(words.next()).context("no request line")?;
    // A runtime may name the registry in the query.
    let path = path.split('?').next().unwrap_or(path);
    let mut stream = stream;
    let Some(Content { kind, digest, bytes }) = contents.get(path) else {
        let status = if path == "/v2/" { "200 OK" } else { "404 Not Found" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
        return Ok(None);
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        bytes.len()
    )?;
    let is_layer = *kind == LAYER && method == "GET";
    if method == "GET" {
        let pieces = if is_layer { PIECES } else { 1 };
        for piece in bytes.chunks(bytes.len().div_ceil(pieces.try_into()?).max(1)) {
            if is_layer {
                thread::sleep(layer_takes / PIECES);
            }
            stream.write_all(piece)?;
        }
    }
    stream.flush()?;
    Ok(Some(Served { path: path.to_owned(), is_layer, asked, done: clock::boot_ns()? }))
}
