//! ClickHouse's HTTP interface, as far as an export uses it. It stores what it receives, for a ClickHouse
//! without HTTP.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
};

pub(crate) const USER: &str = "fleet";
/// A header may have letters outside ASCII.
pub(crate) const PASSWORD: &str = "für keine Liste von Prozessen";

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) requests: PathBuf,
}

impl Server {
    /// Each request becomes `N.sql` with its statement and, if it has a body, `N.parquet`.
    pub(crate) fn start(requests: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/?database=fleet", listener.local_addr().expect("an address"));
        fs::create_dir(requests).expect("a folder");
        let place = requests.to_owned();
        // The thread ends with the test.
        thread::spawn(move || {
            let mut number = 0;
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &place, &mut number);
            }
        });
        Self { url, requests: requests.to_owned() }
    }
}

/// Serves one connection until the client closes it.
fn serve(mut stream: TcpStream, place: &Path, number: &mut u32) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() || line.is_empty() {
            return;
        }
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("POST"), "{line}");
        let (path, query) = words.next().and_then(|target| target.split_once('?')).expect("a query");
        assert_eq!(path, "/");
        let (mut length, mut user, mut password) = (0, String::new(), String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).expect("a header");
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a number"),
                "x-clickhouse-user" => value.clone_into(&mut user),
                "x-clickhouse-key" => value.clone_into(&mut password),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let parameters: Vec<(String, String)> = query.split('&').map(parameter).collect();
        let value =
            |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!((value("database"), value("wait_end_of_query")), (Some("fleet"), Some("1")));
        let (status, answer) = if (user.as_str(), password.as_str()) == (USER, PASSWORD) {
            *number += 1;
            let file = place.join(format!("{number:06}.sql"));
            fs::write(&file, value("query").expect("a statement")).expect("a file");
            if !body.is_empty() {
                fs::write(file.with_extension("parquet"), body).expect("a file");
            }
            ("200 OK", String::new())
        } else {
            let told =
                format!("Code: 516. DB::Exception: {user}: Authentication failed. (AUTHENTICATION_FAILED)\n");
            ("403 Forbidden", told)
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        // It closes the connection silently after its first answer, as a server does at its idle timeout.
        if stream.write_all(answer.as_bytes()).is_err() || *number == 1 {
            return;
        }
    }
}

/// Returns a parameter without its percent-encoding.
fn parameter(pair: &str) -> (String, String) {
    let (key, value) = pair.split_once('=').expect("a value");
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, tail) = rest.split_at(2);
                rest = tail;
                u8::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("digits")
            }
            other => *other,
        });
    }
    (key.to_owned(), String::from_utf8(bytes).expect("text"))
}
