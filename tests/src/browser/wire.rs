//! One exchange with the driver: JSON over HTTP on this machine, with a connection for each exchange.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// The largest allowed answer. A screenshot of a long page has some megabytes.
const LARGEST: usize = 64 << 20;

/// Sends a request to the driver at `port` and returns the `value` of its answer ("WebDriver", section 6.3,
/// Processing model).
pub(super) fn ask(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
    limit: Duration,
) -> Result<Value> {
    let what = || format!("{method} {path}");
    let deadline = Instant::now() + limit;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connect to chromedriver")?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).with_context(what)?;
    let mut reader = BufReader::new(stream);
    let wait = |reader: &mut BufReader<TcpStream>| -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "{} was not answered within {limit:?}", what());
        Ok(reader.get_ref().set_read_timeout(Some(left))?)
    };
    let mut length = None;
    for n in 0.. {
        wait(&mut reader)?;
        let mut line = String::new();
        reader.read_line(&mut line).with_context(|| format!("{} was not answered", what()))?;
        let line = line.trim_end();
        if line.is_empty() {
            ensure!(n > 0, "{} was not answered: chromedriver hung up", what());
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse::<usize>().context("the length of the answer")?);
        }
    }
    let length = length.context("the answer has no length")?;
    ensure!(length <= LARGEST, "an answer of {length} bytes");
    let mut answer = vec![0; length];
    wait(&mut reader)?;
    reader.read_exact(&mut answer).with_context(|| format!("the answer to {} ended early", what()))?;
    let mut answer: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        Some(error) => bail!("{}: {error}: {}", what(), value["message"].as_str().unwrap_or_default()),
        None => Ok(value),
    }
}
