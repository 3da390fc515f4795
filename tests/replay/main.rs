//! Recordings of real runs: each file of `data/recordings` is replayed, and what is told is compared with the
//! `.expect` beside it. A bug met in the field becomes its recording here.

mod picture;

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
    time::{Duration, Instant},
};

use probe_user::{
    engine::{Call, Engine},
    model::{
        fact::{Fact, Observation, Origin},
        finding::Stage,
        time::Timestamp,
    },
    recording::Reader,
    session::Session,
    sink::{
        filter::Filter,
        text::{Style, Text},
    },
};
use tests::golden;

/// What of the demo is played to be found, and nothing else.
const PLAYED: [&str; 3] = ["duplicate_sandbox", "leaked_address", "teardown_out_of_order"];

fn told(recording: &Path) -> String {
    let file = File::open(recording).expect("it was listed");
    let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
    let sink = Text::new(Style { color: false, width: None });
    let mut session = Session::new(reader.header(), Filter::default(), Box::new(sink));
    while let Some(call) = reader.next_call().expect("a whole recording") {
        session.call(call).expect("nothing is recorded");
    }
    String::from_utf8(session.output().clone()).expect("text")
}

#[test]
fn every_recording_is_told_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings");
    let mut met = 0;
    for entry in fs::read_dir(&folder).expect("the folder of recordings") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            golden::expect(&path.with_extension("expect"), &told(&path));
            met += 1;
        }
    }
    assert!(met > 0, "no recording in {}", folder.display());
}

/// The demo shows its recording's findings as they are at its end, also where no root plays it.
#[test]
fn the_demo_s_recording_has_the_findings_that_it_is_about() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings/demo.jsonl");
    let file = File::open(path).expect("the bundled recording");
    let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
    let mut engine = Engine::new(reader.header().settings.clone());
    while let Some(call) = reader.next_call().expect("a whole recording") {
        make(&mut engine, call);
    }
    let mut found = Vec::new();
    for it in engine.findings() {
        assert_eq!(it.stage, Stage::Confirmed, "{it:#?}");
        let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref());
        assert_eq!(pod, Some("report"), "{it:#?}");
        found.push(it.kind.into_str());
    }
    found.sort_unstable();
    assert_eq!(found, PLAYED);
}

/// A recording is data from outside: whatever its times are, a replay ends. What is due in between falls due, but nothing
/// is looked at again and again in which nothing can change.
#[test]
fn a_jump_of_centuries_takes_no_longer_than_one_of_an_hour() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings");
    for recording in ["demo.jsonl", "boots/restart.jsonl"] {
        let calls = |each: &mut dyn FnMut(&Engine, &Call)| {
            let file = File::open(folder.join(recording)).expect("a bundled recording");
            let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
            let mut engine = Engine::new(reader.header().settings.clone());
            while let Some(call) = reader.next_call().expect("a whole recording") {
                each(&engine, &call);
                make(&mut engine, call);
            }
        };
        let mut n = 0_usize;
        calls(&mut |engine, call| {
            n += 1;
            if !n.is_multiple_of(97) {
                return;
            }
            // An engine that has heard the same.
            let mut jumping = Engine::new(engine.settings().clone());
            engine.dump().into_iter().for_each(|entry| jumping.restore(entry));
            let started = Instant::now();
            for at in [Timestamp(Timestamp::LATEST.0 / 2), Timestamp::LATEST] {
                let watermark = Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
                make(&mut jumping, Call::Observe(watermark));
                make(&mut jumping, Call::Advance(at));
                make(&mut jumping, call.clone());
            }
            assert!(started.elapsed() < Duration::from_secs(1), "{recording}: call {n}");
        });
        assert!(n > 1000, "{recording} has {n} calls");
    }
}

fn make(engine: &mut Engine, call: Call) {
    engine.call(call);
    while engine.poll().is_some() {}
}
