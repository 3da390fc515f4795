//! A small HTTP server on this machine for pages under test, with a thread for each connection and one
//! request in each.

use std::{
    io::{self, BufRead as _, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result};

pub struct Site {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path without the query.
    pub path: String,
    /// The text after the question mark. Empty if there is none.
    pub query: String,
    /// The names are in lower case.
    pub headers: Vec<(String, String)>,
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

pub enum Body {
    Whole(Vec<u8>),
    /// Writes for as long as it runs. The connection ends with it.
    Stream(Box<Writes>),
    /// The connection ends without an answer.
    HangUp,
}

/// Writes a body piece by piece.
pub type Writes = dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send;

impl Request {
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }
}

impl Answer {
    #[must_use]
    pub fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![("Content-Type", kind.to_owned())], body: Body::Whole(body.into()) }
    }
}

impl Site {
    pub fn serve(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen for a site")?;
        let port = listener.local_addr()?.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, answer) = (Arc::clone(&is_over), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    // An error means that the client has gone.
                    let _gone = exchange(stream, &*answer);
                });
            }
        });
        Ok(Self { port, is_over, thread: Some(thread) })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The thread waits for a connection, and this is the last one.
        let _last = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn exchange(stream: TcpStream, answer: &dyn Fn(&Request) -> Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(request) = read(&mut reader)? else { return Ok(()) };
    let answer = answer(&request);
    if matches!(answer.body, Body::HangUp) {
        return Ok(());
    }
    let mut head =
        format!("HTTP/1.1 {} .\r\nConnection: close\r\nCache-Control: no-store\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = stream;
    match answer.body {
        Body::Whole(body) => {
            head += &format!("Content-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)
        }
        Body::Stream(write) => {
            stream.write_all((head + "\r\n").as_bytes())?;
            write(&mut stream)
        }
        Body::HangUp => Ok(()),
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(target) = line.split(' ').nth(1) else { return Ok(None) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request { path: path.to_owned(), query: query.to_owned(), headers: Vec::new() };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => return Ok(Some(request)),
        }
    }
}
