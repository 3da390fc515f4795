//! Writes calls as lines.

use serde::Serialize;

use super::{Header, LONGEST_LINE, header, line::Line};
use crate::{engine::Call, model::fact::Observation};

/// Makes the bytes of a recording; the owner of the file takes them from time to time.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    calls: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(
        "a call into the engine takes {len} bytes as a line, more than the {LONGEST_LINE} that can be read back"
    )]
    TooLong { len: usize },
    #[error("a call into the engine has no form as a line: {0}")]
    Shapeless(#[from] serde_json::Error),
}

impl Writer {
    pub fn start(header: &Header) -> Result<Self, WriteError> {
        let mut writer = Self { bytes: Vec::new(), calls: 0 };
        writer.put(&header::Line::of(header))?;
        Ok(writer)
    }

    /// Makes a writer for a recording that has its header already.
    #[must_use]
    pub fn without_header() -> Self {
        Self { bytes: Vec::new(), calls: 0 }
    }

    /// Writes a call. After an error the recording ends with the previous call.
    pub fn write(&mut self, call: &Call) -> Result<(), WriteError> {
        self.put(&Line::of(call))?;
        self.calls += 1;
        Ok(())
    }

    /// Returns the whole lines since the caller last emptied the buffer.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the last line, which shows that nothing is missing, and returns the remaining bytes.
    pub fn end(mut self) -> Result<Vec<u8>, WriteError> {
        self.put(&Line::<&Observation>::End(self.calls))?;
        Ok(self.bytes)
    }

    fn put(&mut self, line: &impl Serialize) -> Result<(), WriteError> {
        let start = self.bytes.len();
        let put = serde_json::to_writer(&mut self.bytes, line);
        self.bytes.push(b'\n');
        let len = self.bytes.len() - start;
        if put.is_err() || len > LONGEST_LINE {
            self.bytes.truncate(start);
        }
        put?;
        if len > LONGEST_LINE { Err(WriteError::TooLong { len }) } else { Ok(()) }
    }
}
