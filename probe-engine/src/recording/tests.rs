//! The format as a whole: there and back, and everything that a file can be instead.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::Ipv6Addr,
};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{Header, LONGEST_HEADER, LONGEST_LINE, ReadError, Reader, Writer};
use crate::{
    engine::{Call, Settings},
    model::{
        fact::{
            Bound, Fact, Holder, Observation, Origin, Reservation, ReservationState, Store, StoreKind,
            StoreRead,
        },
        id::{ContainerId, NetnsKey},
        time::Timestamp,
    },
};

fn header() -> Header {
    Header {
        made_by: "0.1.0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "9f3c6e1a-0000-4000-8000-000000000001".to_owned(),
        kernel: "6.1.0-56-amd64".to_owned(),
        boot_wall_ns: 1_795_000_000_123_456_789,
        settings: Settings::default(),
    }
}

/// A recording of format 1 with one call of each kind. It was made once and stays as it is.
const FORMAT_1: &[u8] = include_bytes!("../../tests/data/format-1.jsonl");

fn one_of_each() -> Vec<Call> {
    let (calls, end) = read(FORMAT_1);
    assert!(end.is_ok(), "{end:?}");
    calls
}

/// This many calls, of each kind in turn.
fn calls(n: usize) -> Vec<Call> {
    one_of_each().into_iter().cycle().take(n).collect()
}

fn written(calls: &[Call]) -> Vec<u8> {
    let mut writer = Writer::start(&header()).expect("the header");
    for call in calls {
        writer.write(call).expect("a call");
    }
    writer.end().expect("the end")
}

/// The calls up to the end or the error, and that.
fn read(file: &[u8]) -> (Vec<Call>, Result<(), ReadError>) {
    let mut calls = Vec::new();
    let mut reader = match Reader::open(file) {
        Ok(reader) => reader,
        Err(error) => return (calls, Err(error)),
    };
    loop {
        match reader.next_call() {
            Ok(Some(call)) => calls.push(call),
            Ok(None) => return (calls, Ok(())),
            Err(error) => return (calls, Err(error)),
        }
    }
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let calls = calls(2_000);
    let file = written(&calls);
    assert_eq!(Reader::open(&*file).expect("a recording").header(), &header());
    let (back, end) = read(&file);
    assert!(end.is_ok(), "{end:?}");
    // Not one assert on both: the difference would be unreadable.
    assert_eq!(back.len(), calls.len());
    for (back, call) in back.iter().zip(&calls) {
        assert_eq!(back, call);
    }
}

/// What was once written must be read for ever. If this fails, the format has changed: raise `VERSION`, and
/// add a fixup. Only the header differs between the formats 1 and 2 of these calls.
#[test]
fn format_1_is_as_it_was() {
    let again = written(&one_of_each());
    let again = String::from_utf8_lossy(&again);
    let expected = String::from_utf8_lossy(FORMAT_1);
    for (line, expected) in again.lines().zip(expected.lines()).skip(1) {
        assert_eq!(line, expected);
    }
    assert_eq!(again.lines().count(), expected.lines().count());
}

/// A kind of fact that is added gets a line of its own at the end of the file, by hand.
#[test]
fn format_1_has_every_kind_of_fact() {
    let error = serde_json::from_str::<Fact>(r#"{"":0}"#).expect_err("no kind of fact").to_string();
    let kinds: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(kinds.contains(&"executed") && kinds.contains(&"watermark"), "{error}");
    let text = str::from_utf8(FORMAT_1).expect("JSON is UTF-8");
    let is_missing = |kind: &&&str| {
        let (alone, with) = (format!("\"fact\":\"{kind}\""), format!("\"fact\":{{\"{kind}\":"));
        !text.contains(&alone) && !text.contains(&with)
    };
    assert_eq!(kinds.iter().find(is_missing), None);
}

#[test]
fn each_call_is_one_line() {
    let file = written(&calls(500));
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 502);
}

#[test]
fn a_recording_cut_anywhere_gives_its_whole_calls_and_says_so() {
    let calls = calls(20);
    let file = written(&calls);
    let first = file.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    for len in first..file.len() - 1 {
        let lines = file[..len].iter().filter(|byte| **byte == b'\n').count();
        match read(&file[..len]) {
            // A last line that lacks only its line end is whole.
            (back, Err(ReadError::CutOff { line })) => {
                assert_eq!(back, calls[..back.len()]);
                assert_eq!(usize::try_from(line).expect("few lines"), back.len() + 1);
                assert!(back.len() == lines - 1 || back.len() == lines, "{} of {lines}", back.len());
            }
            (_, other) => panic!("cut at {len}: {other:?}"),
        }
    }
    assert!(matches!(read(b""), (_, Err(ReadError::Empty))));
    for len in 1..first {
        assert!(matches!(read(&file[..len]), (_, Err(ReadError::Foreign))), "cut at {len}");
    }
}

#[test]
fn what_follows_the_end_is_not_passed_over() {
    let file = written(&calls(3));
    for more in [file.clone(), b"x".to_vec(), vec![b'x'; LONGEST_HEADER + 2]] {
        let (calls, end) = read(&[file.clone(), more].concat());
        assert_eq!(calls.len(), 3);
        assert!(matches!(end, Err(ReadError::Line { line: 6, .. })), "{end:?}");
    }
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let long = vec![b'x'; LONGEST_HEADER * 3];
    let zeros = vec![0; LONGEST_HEADER * 3];
    let foreign: [&[u8]; 8] = [
        b"\n",
        b"hello\n",
        b"{}\n",
        b"{\"sandprobe_recording\":\"1\"}\n",
        b"{\"sandprobe_recording\":0}\n",
        b"\x7fELF\x02\x01\x01\n",
        &long,
        &zeros,
    ];
    for file in foreign {
        let (calls, end) = read(file);
        assert!(calls.is_empty());
        assert!(matches!(end, Err(ReadError::Foreign)), "{end:?}");
    }
    let deep = [b"{\"sandprobe_recording\":".as_slice(), &[b'['; 10_000], b"\n"].concat();
    assert!(matches!(read(&deep), (_, Err(ReadError::Foreign))));
}

#[test]
fn a_newer_format_is_distinguished_from_a_foreign_file() {
    let (_, end) = read(b"{\"sandprobe_recording\":999,\"anything\":[]}\n");
    assert!(matches!(end, Err(ReadError::Newer { version: 999 })), "{end:?}");
}

#[test]
fn a_bad_line_is_named() {
    let good = String::from_utf8(written(&calls(3))).expect("JSON is UTF-8");
    let with_line = |number: usize, line: &str| {
        let lines: Vec<&str> = good.lines().collect();
        let mut lines = lines.clone();
        lines[number - 1] = line;
        read((lines.join("\n") + "\n").as_bytes())
    };
    for bad in [
        "",
        "{",
        "{\"advance\":12}",
        "{\"advance\":\"-1\"}",
        "{\"advance\":\"9223372036854775808\"}",
        "{\"observe\":{\"at\":\"18446744073709551615\",\"origin\":\"agent\",\"fact\":\"watermark\"}}",
        "{\"observe\":{}}",
        "{\"other\":1}",
        "[]",
        "\u{0}",
    ] {
        let (calls, end) = with_line(3, bad);
        assert_eq!(calls.len(), 1);
        assert!(matches!(end, Err(ReadError::Line { line: 3, .. })), "{bad}: {end:?}");
    }
    let (_, end) = with_line(3, &"x".repeat(LONGEST_LINE + 1));
    assert!(matches!(end, Err(ReadError::TooLong { line: 3 })), "{end:?}");
    let (_, end) = with_line(5, "{\"end\":\"4\"}");
    assert!(matches!(end, Err(ReadError::Missing { line: 5, said: 4, found: 3 })), "{end:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_an_error_and_never_a_panic(noise in vec((any::<Index>(), any::<u8>()), 1..5)) {
        let mut file = FORMAT_1.to_vec();
        for (at, byte) in noise {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let (calls, _) = read(&file);
        prop_assert!(calls.len() <= one_of_each().len() + 4);
    }
}

#[test]
fn nothing_is_written_that_could_not_be_read() {
    let mut writer = Writer::start(&header()).expect("the header");
    let fact = Fact::NetnsFound {
        netns: NetnsKey::new(1, 2),
        mounts: vec!["m".repeat(LONGEST_LINE)],
        vacant: false,
    };
    let seen = Observation { at: Timestamp(1), origin: Origin::Listed, fact };
    let error = writer.write(&Call::Observe(seen)).expect_err("too long");
    assert!(matches!(error, super::WriteError::TooLong { .. }));
    let (calls, end) = read(&writer.end().expect("the end"));
    assert!(calls.is_empty() && end.is_ok(), "{end:?}");
}

#[test]
fn a_foreign_file_is_known_by_its_beginning() {
    let mut file = BufReader::new(io::repeat(b'x'));
    let mut counted = Counted { from: &mut file, taken: 0 };
    assert!(matches!(Reader::open(&mut counted), Err(ReadError::Foreign)));
    assert!(counted.taken <= LONGEST_HEADER + 1, "{}", counted.taken);
}

struct Counted<R> {
    from: R,
    taken: usize,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.taken += amount;
        self.from.consume(amount);
    }
}

/// The most that a directory can hold, with the longest names there are.
#[test]
fn the_largest_reading_of_a_store_is_one_line() {
    let one = |at: u32| Reservation {
        address: Ipv6Addr::from(u128::MAX - u128::from(at)).into(),
        holder: ContainerId::parse(&"c".repeat(256))
            .map(|container| Holder { container, ifname: "\u{1}".repeat(15) }),
        since: Timestamp(u64::MAX),
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    };
    let reading = StoreRead {
        store: Store {
            kind: StoreKind::Declared,
            path: "/x".to_owned(),
            network: None,
            bound: Bound::Sandbox,
        },
        reservations: (0..1 << 16).map(one).collect(),
        complete: true,
    };
    let at = Timestamp(1);
    let call = Call::Observe(Observation { at, origin: Origin::Listed, fact: Fact::StoreRead(reading) });
    let calls = [call, Call::Advance(at)];
    let (back, end) = read(&written(&calls));
    assert!(end.is_ok(), "{end:?}");
    assert!(back == calls);
}
