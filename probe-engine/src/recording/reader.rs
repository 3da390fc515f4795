//! Reads lines into calls: one at a time, with bounded length, whatever the file contains.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Header, LONGEST_HEADER, LONGEST_LINE, VERSION,
    fixup::{FIXUPS, Fixup, upgrade},
    header::{self, Mark},
    line::Line,
};
use crate::engine::Call;

/// Reads a recording from its beginning.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    version: u32,
    fixups: &'static [Fixup],
    buffer: Vec<u8>,
    /// The number of the last line read, from 1.
    number: u64,
    calls: u64,
    ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("not a sandprobe recording")]
    Foreign,
    #[error("empty: no recording was written to it")]
    Empty,
    #[error(
        "made in format {version} by a newer sandprobe; this one reads up to format {VERSION}: use that newer one"
    )]
    Newer { version: u64 },
    /// All calls before it were whole and have been returned.
    #[error("cut off after line {line}: the recording was not ended in order, what is whole was replayed")]
    CutOff { line: u64 },
    #[error("line {line} is longer than {LONGEST_LINE} bytes: not a line of a recording")]
    TooLong { line: u64 },
    #[error("line {line} cannot be understood: {why}")]
    Line { line: u64, why: String },
    #[error("line {line} says that {said} calls were made, but {found} are there")]
    Missing { line: u64, said: u64, found: u64 },
    #[error("line {line} cannot be read: {error}")]
    Io { line: u64, error: io::Error },
}

/// What was read at one position of the file.
enum Piece {
    Whole,
    /// The last line, without its line end.
    Part,
    Nothing,
}

impl<R: BufRead> Reader<R> {
    pub fn open(from: R) -> Result<Self, ReadError> {
        Self::with_table(from, VERSION, &FIXUPS)
    }

    /// `newest` is the version to which the table converts.
    fn with_table(mut from: R, newest: u32, fixups: &'static [Fixup]) -> Result<Self, ReadError> {
        let mut buffer = Vec::new();
        match read_line(&mut from, &mut buffer, 1, LONGEST_HEADER) {
            Ok(Piece::Whole) => {}
            Ok(Piece::Nothing) => return Err(ReadError::Empty),
            Ok(Piece::Part) | Err(ReadError::TooLong { .. }) => return Err(ReadError::Foreign),
            Err(error) => return Err(error),
        }
        let mark: Mark = serde_json::from_slice(&buffer).map_err(|_other| ReadError::Foreign)?;
        let newer = ReadError::Newer { version: mark.sandprobe_recording };
        let Ok(version) = u32::try_from(mark.sandprobe_recording) else { return Err(newer) };
        match version {
            0 => return Err(ReadError::Foreign),
            _ if version > newest => return Err(newer),
            _ => {}
        }
        let header: header::Line<'_> =
            parse(&buffer, version, fixups).map_err(|why| ReadError::Line { line: 1, why })?;
        Ok(Self {
            from,
            header: header.header.into_owned(),
            version,
            fixups,
            buffer,
            number: 1,
            calls: 0,
            ended: false,
        })
    }

    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next call; `None` after the last of a whole recording. After an error there are no more
    /// calls.
    pub fn next_call(&mut self) -> Result<Option<Call>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.read_call();
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }

    fn read_call(&mut self) -> Result<Option<Call>, ReadError> {
        let line = self.number + 1;
        let piece = read_line(&mut self.from, &mut self.buffer, line, LONGEST_LINE)?;
        if matches!(piece, Piece::Nothing) {
            return Err(ReadError::CutOff { line: self.number });
        }
        self.number = line;
        let parsed: Line = match (parse(&self.buffer, self.version, self.fixups), piece) {
            (Ok(parsed), _) => parsed,
            (Err(_), Piece::Part) => return Err(ReadError::CutOff { line: line - 1 }),
            (Err(why), _) => return Err(ReadError::Line { line, why }),
        };
        match parsed {
            Line::Observe(seen) => self.given(Call::Observe(seen)),
            Line::Advance(now) => self.given(Call::Advance(now)),
            Line::Restore(entry) => self.given(Call::Restore(entry)),
            Line::End(said) if said == self.calls => {
                let line = line + 1;
                match read_line(&mut self.from, &mut self.buffer, line, LONGEST_HEADER) {
                    Ok(Piece::Nothing) => Ok(None),
                    Err(error @ ReadError::Io { .. }) => Err(error),
                    Ok(Piece::Whole | Piece::Part) | Err(_) => {
                        Err(ReadError::Line { line, why: "the recording has ended before it".to_owned() })
                    }
                }
            }
            Line::End(said) => Err(ReadError::Missing { line, said, found: self.calls }),
        }
    }

    fn given(&mut self, call: Call) -> Result<Option<Call>, ReadError> {
        self.calls += 1;
        Ok(Some(call))
    }
}

/// Reads a line into `buffer`, without its line end. The buffer grows only with what is really read, and
/// shrinks again after a long line.
fn read_line(
    from: &mut impl BufRead,
    buffer: &mut Vec<u8>,
    line: u64,
    longest: usize,
) -> Result<Piece, ReadError> {
    buffer.clear();
    buffer.shrink_to(LONGEST_HEADER);
    let bound = longest as u64 + 1;
    let n =
        from.by_ref().take(bound).read_until(b'\n', buffer).map_err(|error| ReadError::Io { line, error })?;
    if buffer.last() == Some(&b'\n') {
        buffer.pop();
        return Ok(Piece::Whole);
    }
    match n {
        0 => Ok(Piece::Nothing),
        n if n > longest => Err(ReadError::TooLong { line }),
        _ => Ok(Piece::Part),
    }
}

/// Parses a line. A line of an older format is converted first.
fn parse<T: DeserializeOwned>(text: &[u8], version: u32, fixups: &[Fixup]) -> Result<T, String> {
    let current = usize::try_from(version).is_ok_and(|version| version > fixups.len());
    if current {
        return serde_json::from_slice(text).map_err(|error| error.to_string());
    }
    let mut value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    upgrade(&mut value, version, fixups);
    serde_json::from_value(value).map_err(|error| error.to_string())
}
