//! Files that an earlier agent wrote: recordings (a kept state is one), findings and boots.

use probe_user::{
    engine::{Call, Engine},
    model::time::Timestamp,
    recording::{
        Header, Reader, Writer,
        history::{self, Heartbeat, History, Record},
        state::{self, About, Snapshot},
    },
};

use super::{
    material::{DEMO, FORMS, calls},
    player::header,
};

/// The first lines of the demo are enough.
const LINES: usize = 12;

pub fn seeds() -> Vec<Vec<u8>> {
    let lines =
        |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').take(LINES).collect::<Vec<_>>().concat();
    let first = FORMS.split_inclusive(|byte| *byte == b'\n').next().expect("a header");
    // Each line of every form in a file of its own.
    let of_one = |line: &[u8]| [first, line, b"{\"end\":\"1\"}\n"].concat();
    let forms = FORMS.split_inclusive(|byte| *byte == b'\n').skip(1).map(of_one);
    let mut engine = Engine::new(header().settings);
    calls(DEMO).into_iter().for_each(|call| engine.call(call));
    let Header { made_by, node, boot_id, boot_wall_ns, .. } = header();
    let about = About {
        made_by: made_by.clone(),
        node: node.clone(),
        boot_id: boot_id.clone(),
        boot_wall_ns,
        pid: 1,
        written_at: Timestamp(1),
        ended: false,
    };
    let known =
        Snapshot { findings: engine.findings().collect(), starts: engine.starts(), shares: engine.shares() };
    let running = engine.running_pods();
    let beat = Heartbeat { boot_id, boot_wall_ns, at: Timestamp(1), ended: true, running };
    let record = Record { made_by, node, recovery: engine.recovery().clone() };
    let others = [
        state::write(&about, &known),
        history::heartbeat(&beat),
        history::line(&record),
        history::line(&record).map(|line| body(&line)),
    ];
    forms.chain([lines(DEMO)]).chain(others.map(|file| file.expect("it has a form"))).collect()
}

pub fn run(bytes: &[u8]) {
    if let Ok(mut reader) = Reader::open(bytes) {
        let mut writer = Writer::start(reader.header()).expect("a header");
        let header = reader.header().clone();
        let mut calls = Vec::new();
        while let Ok(Some(call)) = reader.next_call() {
            writer.write(&call).expect("what was read can be written");
            calls.push(call);
        }
        assert!(reader.next_call().is_ok_and(|call| call.is_none()), "there is something after the end");
        let again = writer.end().expect("an end");
        let mut reader = Reader::open(&*again).expect("what was written can be read");
        assert_eq!(*reader.header(), header);
        let read = || reader.next_call().expect("what was written can be read");
        assert_eq!(std::iter::from_fn(read).collect::<Vec<Call>>(), calls);
    }
    if let Ok((about, saved)) = state::read(bytes) {
        let findings = saved.findings.iter().collect();
        let (starts, shares) = (saved.starts.clone(), saved.shares.clone());
        let known = Snapshot { findings, starts, shares };
        let again = state::write(&about, &known).expect("what was read can be written");
        assert_eq!(state::read(&again).expect("what was written can be read"), (about, saved));
    }
    boots(bytes);
    if let Some(beat) = history::read_heartbeat(bytes) {
        assert!(beat.wall_ns() >= beat.boot_wall_ns);
        let again = history::heartbeat(&beat).expect("what was read can be written");
        assert_eq!(history::read_heartbeat(&again), Some(beat));
    }
}

/// Returns the part of a boot's line after its checksum.
fn body(line: &[u8]) -> Vec<u8> {
    let begin = line.iter().position(|byte| *byte == b',').map_or(0, |comma| comma + b",\"boot\":".len());
    line[begin..].strip_suffix(b"}\n").expect("a line").to_vec()
}

/// Reads the bytes as a whole file, and as the body of a line with the right checksum.
fn boots(bytes: &[u8]) {
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let line = [format!("{{\"sum\":\"{sum:016x}\",\"boot\":").as_bytes(), bytes, b"}\n"].concat();
    for file in [bytes, &line] {
        let read = History::read(file);
        if let Some(less) = history::compact(file, 2) {
            assert_eq!(history::compact(&less, 2), None, "it would be made less for ever");
        }
        for record in &read.records {
            let line = history::line(record).expect("what was read can be written");
            assert_eq!(History::read(&line).records, std::slice::from_ref(record));
        }
    }
}
