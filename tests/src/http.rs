//! A minimal HTTP client, so that a test sees exactly what the server answered.

use std::io::{Read, Write};

use anyhow::{Context as _, Result, ensure};

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// Returns the body of an answer with status 200.
    pub fn ok(self) -> Result<String> {
        ensure!(self.status == 200, "answered {}: {}", self.status, self.body);
        Ok(self.body)
    }
}

/// Uses HTTP/1.0, so that the answer has no chunks and ends with the connection.
pub fn get(mut stream: impl Read + Write, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, body: body.to_owned() })
}
