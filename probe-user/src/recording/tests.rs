//! The format as a whole: there and back, and everything that a file can be instead.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, BufRead, BufReader, Read},
    net::Ipv6Addr,
};

use super::{
    Call, Header, LONGEST_HEADER, LONGEST_LINE, ReadError, Reader, Writer, fact::Observation, id::Clock,
    mirror::Mirror, sample::Dice,
};
use crate::engine::{
    Settings,
    fact::{self, Fact, Holder, Origin, Reservation, Store, StoreKind, StoreRead},
    id::ContainerId,
    time::Timestamp,
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

fn calls(seed: u64, n: usize) -> Vec<Call> {
    let dice = &mut Dice::seeded(seed);
    let any = |dice: &mut Dice| match dice.below(4) {
        0 => Call::Advance(Clock::sample(dice)),
        _ => Call::Observe(Observation::sample(dice)),
    };
    (0..n).map(|_| any(dice)).collect()
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
    let calls = calls(1, 20_000);
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

/// One call of each kind, as the dice show it first.
fn one_of_each() -> Vec<Call> {
    let dice = &mut Dice::seeded(8);
    let mut kinds = BTreeMap::new();
    for _ in 0..2_000 {
        let seen = Observation::sample(dice);
        // Rows of the world are not yet written by anyone.
        if !matches!(seen.fact, Fact::Remembered(_)) {
            let kind = format!("{:?}", seen.fact).split([' ', '(']).next().map(str::to_owned);
            kinds.entry(kind).or_insert(Call::Observe(seen));
        }
    }
    kinds.into_values().chain([Call::Advance(Clock::sample(dice))]).collect()
}

/// What was once written must be read for ever. If this fails, the format has changed: raise `VERSION`, add a fixup, and
/// let this test ask only that the file can still be read. Only while nobody has such a recording yet, it may be written
/// anew (`UPDATE_EXPECT=1`).
#[test]
fn format_1_is_as_it_was() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/format-1.jsonl");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, written(&one_of_each())).expect("the expectation is written");
    }
    let expected = fs::read(path).expect("the expectation is there");
    let (calls, end) = read(&expected);
    assert!(end.is_ok(), "{end:?}");
    let again = written(&calls);
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    for (line, expected) in lines(&again).iter().zip(&lines(&expected)) {
        assert_eq!(line, expected);
    }
    assert_eq!(again.len(), expected.len());
}

#[test]
fn each_call_is_one_line() {
    let file = written(&calls(2, 500));
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 502);
}

#[test]
fn a_recording_cut_anywhere_gives_its_whole_calls_and_says_so() {
    let calls = calls(3, 20);
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
    for len in 0..first {
        assert!(matches!(read(&file[..len]), (_, Err(ReadError::Foreign))), "cut at {len}");
    }
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let long = vec![b'x'; LONGEST_HEADER * 3];
    let zeros = vec![0; LONGEST_HEADER * 3];
    let foreign: [&[u8]; 9] = [
        b"",
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
fn a_newer_format_is_told_from_a_foreign_file() {
    let (_, end) = read(b"{\"sandprobe_recording\":999,\"anything\":[]}\n");
    assert!(matches!(end, Err(ReadError::Newer { version: 999 })), "{end:?}");
}

#[test]
fn a_bad_line_is_named() {
    let good = String::from_utf8(written(&calls(4, 3))).expect("JSON is UTF-8");
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

#[test]
fn noise_is_an_error_and_never_a_panic() {
    let good = written(&calls(5, 40));
    let dice = &mut Dice::seeded(6);
    for _ in 0..2_000 {
        let mut file = good.clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(file.len());
            file[at] = dice.any();
        }
        let (calls, _) = read(&file);
        assert!(calls.len() <= 42, "{}", calls.len());
    }
}

#[test]
fn nothing_is_written_that_could_not_be_read() {
    let mut writer = Writer::start(&header()).expect("the header");
    let mut dice = Dice::seeded(7);
    let mut seen = Observation::sample(&mut dice);
    seen.fact = Fact::NetnsFound {
        netns: crate::engine::id::NetnsKey::new(1, 2),
        mounts: vec!["m".repeat(LONGEST_LINE)],
        vacant: false,
    };
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
    };
    let reading = StoreRead {
        store: Store { kind: StoreKind::Declared, path: "/x".to_owned(), network: None },
        reservations: (0..1 << 16).map(one).collect(),
        complete: true,
    };
    let at = Timestamp(1);
    let call =
        Call::Observe(fact::Observation { at, origin: Origin::Listed, fact: Fact::StoreRead(reading) });
    let calls = [call, Call::Advance(at)];
    let (back, end) = read(&written(&calls));
    assert!(end.is_ok(), "{end:?}");
    assert!(back == calls);
}
