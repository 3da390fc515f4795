//! The history of a node's boots as it is kept on disk: `boots.jsonl`, one line for each time that there was something
//! new about a boot, of which the last one counts; and `heartbeat.json`, which is replaced as a whole.
//!
//! A line is `{"sum":"SUM","boot":BODY}`, with the FNV-1a hash of the body's bytes in 16 hex digits: what power loss
//! has left of a line, or put in its place, is known by its sum and passed over.
//!
//! **Invariant:** whatever the bytes are, every whole line in them is read.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    hash::fnv,
    recovery::{Recovery, RunningPods},
    time::Timestamp,
};

/// The version of what is written. Members may be added within one; a member that goes or changes raises it.
pub(crate) const SCHEMA: u32 = 1;

/// What is kept of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the agent.
    pub made_by: String,
    pub node: String,
    pub recovery: Recovery,
}

/// The last sign of life.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub boot_id: String,
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    pub at: Timestamp,
    /// The agent ended in order: it was told to.
    pub ended: bool,
    /// The pods that ran at that time.
    #[serde(flatten)]
    pub running: RunningPods,
}

/// All that a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// One for each boot, in the order in which the boots were first told of.
    pub records: Vec<Record>,
    /// The lines that are none, from 1, each with why.
    pub skipped: Vec<(usize, Why)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The last line, without its end.
    #[error("was cut off while it was written")]
    Torn,
    #[error("is not as it was written")]
    Damaged,
    #[error("is in format {0} of a newer sandprobe")]
    Newer(u32),
}

/// What is written, with the version of its format; `T` is borrowed then.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    schema: u32,
    #[serde(flatten)]
    it: T,
}

/// The member by which the format is known.
#[derive(Deserialize)]
struct TimedSource {
    schema: u32,
}

/// So many bytes of boots are kept, whatever their number; the last two in any case.
const TOTAL: usize = 4 << 20;
const LEAST: usize = 2;

/// What is before the sum, between it and the body, and behind that.
const HEAD: &str = "{\"sum\":\"";
const NECK: &str = "\",\"boot\":";
const TAIL: &str = "}";
const SUM: usize = 16;

impl Record {
    /// The boot's id; empty if even that is not known.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        self.recovery.boot.as_ref().map_or("", |boot| &boot.boot_id)
    }
}

impl Heartbeat {
    /// When it was, ns since the epoch.
    #[must_use]
    pub fn wall_ns(&self) -> i64 {
        self.boot_wall_ns.saturating_add_unsigned(self.at.0)
    }
}

impl History {
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        for (number, line) in lines(bytes) {
            match parse(line.bytes) {
                Ok(record) => match history.records.iter_mut().find(|it| it.boot_id() == record.boot_id()) {
                    Some(known) => *known = record,
                    None => history.records.push(record),
                },
                Err(Why::Damaged) if !line.ended => history.skipped.push((number, Why::Torn)),
                Err(why) => history.skipped.push((number, why)),
            }
        }
        history
    }

    /// What there is of this boot.
    #[must_use]
    pub fn of(&self, boot_id: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.boot_id() == boot_id)
    }

    /// The boot before this one, as far as the history goes.
    #[must_use]
    pub fn before(&self, boot_id: &str) -> Option<&Record> {
        let until = self.records.iter().position(|record| record.boot_id() == boot_id);
        let until = until.unwrap_or(self.records.len());
        self.records.get(until.checked_sub(1)?)
    }
}

/// What a record is as a line.
pub fn line(record: &Record) -> serde_json::Result<Vec<u8>> {
    let body = serde_json::to_string(&Versioned { schema: SCHEMA, it: record })?;
    Ok(format!("{HEAD}{:016x}{NECK}{body}{TAIL}\n", fnv(body.as_bytes())).into_bytes())
}

/// The same history in fewer bytes: of each boot the last line, of the boots the last `keep`, and nothing that cannot
/// be read; what a newer version wrote stays. `None`: nothing would go.
#[must_use]
pub fn compact(bytes: &[u8], keep: usize) -> Option<Vec<u8>> {
    let mut kept: Vec<(Option<String>, &[u8])> = Vec::new();
    let mut is_less = false;
    for (_, line) in lines(bytes) {
        is_less |= !line.ended;
        match parse(line.bytes) {
            Ok(record) => {
                let id = Some(record.boot_id().to_owned());
                if let Some(known) = kept.iter_mut().find(|(known, _)| *known == id) {
                    known.1 = line.bytes;
                    is_less = true;
                } else {
                    kept.push((id, line.bytes));
                }
            }
            Err(Why::Newer(_)) => kept.push((None, line.bytes)),
            Err(Why::Torn | Why::Damaged) => is_less = true,
        }
    }
    let mut excess = kept.len().saturating_sub(keep);
    let mut size: usize = kept.iter().skip(excess).map(|(_, line)| line.len() + 1).sum();
    while size > TOTAL && kept.len() > excess + LEAST {
        size -= kept.get(excess).map_or(0, |(_, line)| line.len() + 1);
        excess += 1;
    }
    if excess == 0 && !is_less {
        return None;
    }
    let lines = kept.into_iter().skip(excess).flat_map(|(_, line)| [line, b"\n"]);
    Some(lines.collect::<Vec<_>>().concat())
}

pub fn heartbeat(beat: &Heartbeat) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(&Versioned { schema: SCHEMA, it: beat })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// `None`: it is none.
#[must_use]
pub fn read_heartbeat(bytes: &[u8]) -> Option<Heartbeat> {
    let beat: Versioned<Heartbeat> = serde_json::from_slice(bytes).ok()?;
    (beat.schema == SCHEMA).then_some(beat.it)
}

struct Line<'a> {
    bytes: &'a [u8],
    ended: bool,
}

/// Those that are not empty, with their number.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Line<'_>)> {
    let pieces = bytes.split_inclusive(|byte| *byte == b'\n');
    (1..).zip(pieces).filter_map(|(number, piece)| {
        let bytes = piece.strip_suffix(b"\n");
        let line = Line { bytes: bytes.unwrap_or(piece), ended: bytes.is_some() };
        (!line.bytes.is_empty()).then_some((number, line))
    })
}

fn parse(line: &[u8]) -> Result<Record, Why> {
    let text = str::from_utf8(line).map_err(|_not_text| Why::Damaged)?;
    let body = body(text).ok_or(Why::Damaged)?;
    let read = || -> serde_json::Result<Result<Record, u32>> {
        let TimedSource { schema } = serde_json::from_str(body)?;
        let record = || serde_json::from_str(body).map(|it: Versioned<Record>| it.it);
        if schema == SCHEMA { record().map(Ok) } else { Ok(Err(schema)) }
    };
    match read() {
        Ok(Ok(record)) => Ok(record),
        Ok(Err(schema)) => Err(Why::Newer(schema)),
        Err(_shapeless) => Err(Why::Damaged),
    }
}

/// The body, if the sum is its.
fn body(line: &str) -> Option<&str> {
    let (said, rest) = line.strip_prefix(HEAD)?.split_at_checked(SUM)?;
    let body = rest.strip_prefix(NECK)?.strip_suffix(TAIL)?;
    (format!("{:016x}", fnv(body.as_bytes())) == said).then_some(body)
}
