//! The history of a node's boots as it is kept on disk: `boots.jsonl`, one line for each time that there was something
//! new about a boot, of which the last one counts; and `heartbeat.json`, which is replaced as a whole.
//!
//! A line is `{"sum":"SUM","boot":BODY}`, with the FNV-1a hash of the body's bytes in 16 hex digits: what power loss
//! has left of a line, or put in its place, is known by its sum and passed over.
//!
//! **Invariant:** whatever the bytes are, every whole line in them is read.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    recovery::{Recovery, StandingPods},
    time::Timestamp,
};

/// The version of what is written. Members may be added within one; a member that goes or changes raises it.
pub const SCHEMA: u32 = 1;

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
    /// The pods that were there.
    #[serde(flatten)]
    pub standing: StandingPods,
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
    Ok(format!("{HEAD}{:016x}{NECK}{body}{TAIL}\n", sum(body.as_bytes())).into_bytes())
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
    (format!("{:016x}", sum(body.as_bytes())) == said).then_some(body)
}

/// FNV-1a, 64 bits (draft-eastlake-fnv, section 2).
fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Heartbeat, History, Record, TOTAL, Why, compact, heartbeat, line, read_heartbeat, sum};
    use crate::model::{
        id::{ContainerId, PodUid},
        recovery::{
            BootRead, Kind, NetworkAttempt, Order, Ordered, Pod, PreviousBoot, Recovered, RecoveredPod,
            Recovery, Source, StandingPods, TimedSource, Unseen,
        },
        time::Timestamp,
    };

    fn record(id: &str, revision: u64) -> Record {
        let boot = Some(BootRead { boot_id: id.to_owned(), ..BootRead::default() });
        let recovery = Recovery { boot, revision, ..Recovery::default() };
        Record { made_by: "0".to_owned(), node: "n".to_owned(), recovery }
    }

    fn pod() -> Pod {
        let uid = PodUid::parse("0123456789abcdef0123456789abcdef");
        let (namespace, name) = (Some("default".to_owned()), Some("\u{1}\"w\u{e9}b\\0".to_owned()));
        Pod { namespace, name, uid, kind: Kind::Static, listens: true }
    }

    fn standing() -> StandingPods {
        StandingPods { pods: vec![pod()], pods_left_out: 6 }
    }

    /// All that can be known of a boot, with numbers at their ends.
    fn full(recovery: Recovery) -> Recovery {
        let mark = |source| Some(TimedSource { at: Timestamp(u64::MAX), source });
        let ordered =
            Ordered { wall_ns: i64::MIN, by: "systemctl reboot".to_owned(), source: Source::Journal };
        let before = PreviousBoot {
            boot_id: Some("a".to_owned()),
            ordered: Some(ordered),
            alive_wall_ns: Some(i64::MAX),
            pods: Some(vec![pod()]),
            pods_left_out: 3,
            unseen: Some(Unseen { boots: 2, last_wall_ns: -1, source: Source::Wtmp }),
        };
        let tried = NetworkAttempt {
            sandbox: ContainerId::parse(&"a".repeat(64)).expect("letters"),
            began: Timestamp(1),
            ended: Timestamp(u64::MAX - 1),
            failed: Some("bridge".to_owned()),
        };
        let boot = recovery.boot.map(|boot| BootRead { kernel: "6.1".to_owned(), before, ..boot });
        let back = RecoveredPod {
            pod: pod(),
            mark: TimedSource { at: Timestamp(3), source: Source::FileTime },
            listened: Some(Timestamp(4)),
        };
        Recovery {
            boot,
            quiet: Duration::from_nanos(u64::MAX),
            recovered: Recovered::Listening,
            hears: true,
            watched_since: Some(Timestamp(5)),
            init: mark(Source::Boot),
            runtime: mark(Source::ProcStart),
            kubelet: mark(Source::Hook),
            tries: vec![tried],
            leased_since: Some(Timestamp(6)),
            pods: vec![back],
            order: Some(Order { at: Timestamp(7), by: "reboot".to_owned(), standing: standing() }),
            closed: true,
            seen_until: Timestamp(8),
            ..recovery
        }
    }

    fn file(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|it| line(it).expect("JSON")).collect()
    }

    #[test]
    fn what_is_kept_is_read_back_the_same() {
        let mut it = record("b", u64::MAX);
        it.recovery = full(it.recovery);
        let history = History::read(&file(std::slice::from_ref(&it)));
        assert_eq!((history.records, history.skipped), (vec![it], vec![]));
        // The draft's own vectors.
        assert_eq!((sum(b""), sum(b"foobar")), (0xcbf2_9ce4_8422_2325, 0x8594_4171_f739_67e8));
    }

    #[test]
    fn of_each_boot_the_last_line_counts() {
        let history = History::read(&file(&[record("a", 1), record("b", 1), record("a", 2)]));
        assert_eq!(history.records, [record("a", 2), record("b", 1)]);
        assert_eq!(history.of("b"), Some(&record("b", 1)));
        assert_eq!(history.before("b"), Some(&record("a", 2)));
        assert_eq!((history.before("new"), history.before("a")), (Some(&record("b", 1)), None));
    }

    /// Power is lost at every byte of a write: at most that line is missing, and what is written next is whole.
    #[test]
    fn a_torn_write_loses_the_last_line_alone() {
        let whole = file(&[record("a", 1), record("b", 1)]);
        let last = line(&record("b", 2)).expect("JSON");
        for cut in 0..=last.len() {
            let mut bytes = whole.clone();
            bytes.extend(&last[..cut]);
            let history = History::read(&bytes);
            // Only its end is missing: the sum says that it is whole.
            let is_whole = cut + 1 >= last.len();
            let revision = if is_whole { 2 } else { 1 };
            assert_eq!(history.records, [record("a", 1), record("b", revision)], "{cut}");
            let torn = cut > 0 && !is_whole;
            assert_eq!(history.skipped, if torn { vec![(3, Why::Torn)] } else { vec![] }, "{cut}");

            let mut after = compact(&bytes, 50).unwrap_or(bytes);
            after.extend(line(&record("c", 1)).expect("JSON"));
            let history = History::read(&after);
            assert_eq!(history.records.last(), Some(&record("c", 1)), "{cut}");
            assert_eq!((history.records.len(), history.skipped.len()), (3, 0), "{cut}");
        }
    }

    #[test]
    fn a_line_that_is_damaged_takes_no_other_with_it() {
        let whole = file(&[record("a", 1), record("b", 1), record("c", 1)]);
        let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        for at in ends[0] + 1..ends[1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x01;
            let history = History::read(&bytes);
            assert_eq!(history.records, [record("a", 1), record("c", 1)], "{at}");
            assert!(history.skipped.iter().all(|(_, why)| *why == Why::Damaged), "{at}");
            assert!(!history.skipped.is_empty(), "{at}");
        }
        // As a file system leaves it that had made room and not yet written.
        let mut zeros = whole[..=ends[0]].to_vec();
        zeros.extend([0; 512]);
        assert_eq!(History::read(&zeros).records, [record("a", 1)]);
    }

    #[test]
    fn only_so_many_boots_are_kept_and_what_is_newer_stays() {
        let mut bytes = file(&[record("a", 1), record("b", 1), record("b", 2), record("c", 1)]);
        assert_eq!(compact(&bytes, 2), Some(file(&[record("b", 2), record("c", 1)])));
        let body = r#"{"schema":2,"x":1}"#;
        let newer = format!("{{\"sum\":\"{:016x}\",\"boot\":{body}}}\n", sum(body.as_bytes()));
        bytes.extend(newer.as_bytes());
        assert_eq!(History::read(&bytes).skipped, [(5, Why::Newer(2))]);
        let compacted = compact(&bytes, 50).expect("less");
        assert!(compacted.ends_with(newer.as_bytes()));
        assert_eq!(compact(&compacted, 50), None);
    }

    #[test]
    fn boots_are_bounded_by_bytes_too() {
        let large = |id: &str| {
            let mut it = record(id, 1);
            it.node = "n".repeat(TOTAL / 4);
            it
        };
        let bytes = file(&["a", "b", "c", "d", "e", "f"].map(large));
        let less = compact(&bytes, 50).expect("too many bytes");
        assert!(less.len() <= TOTAL, "{}", less.len());
        assert_eq!(less, file(&["d", "e", "f"].map(large)), "the last ones stay");
        // However large they are, this boot and the one before stay.
        let huge = |id: &str| Record { node: "n".repeat(TOTAL), ..record(id, 1) };
        assert_eq!(compact(&file(&["a", "b", "c"].map(huge)), 50), Some(file(&["b", "c"].map(huge))));
        assert_eq!(compact(&file(&["b", "c"].map(huge)), 50), None);
    }

    #[test]
    fn a_heartbeat_is_one_or_none() {
        let pods = vec![pod(); 20];
        let beat = Heartbeat {
            boot_id: "b".to_owned(),
            boot_wall_ns: 1_795_000_000_000_000_000,
            at: Timestamp(5),
            ended: true,
            standing: StandingPods { pods, pods_left_out: 2 },
        };
        let bytes = heartbeat(&beat).expect("JSON");
        assert_eq!(beat.wall_ns(), 1_795_000_000_000_000_005);
        assert_eq!(read_heartbeat(&bytes), Some(beat));
        for cut in 0..bytes.len() - 1 {
            assert_eq!(read_heartbeat(&bytes[..cut]), None, "{cut}");
        }
    }
}
