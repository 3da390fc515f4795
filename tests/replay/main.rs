//! Recordings of real runs. The test replays each file of `data/recordings` and compares the output with the
//! `.expect` file beside it. A recording of a bug in the field is added here.

mod picture;

use std::{
    fs::{self, File},
    io::BufReader,
    path::Path,
    time::{Duration, Instant},
};

use probe_user::{
    engine::{
        Call, Engine,
        incident::{Incident, Incidents},
    },
    model::{
        fact::{Fact, Observation, Origin},
        finding::Stage,
        time::Timestamp,
    },
    recording::Reader,
    session::Session,
    sink::{
        render::text::{Style, Text},
        select::filter::Filter,
    },
};
use tests::golden;

/// The findings that the demo causes.
const DEMO_FINDINGS: [&str; 3] = ["duplicate_sandbox", "leaked_address", "teardown_out_of_order"];

fn replay(recording: &Path) -> String {
    let file = File::open(recording).expect("a listed file");
    let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
    let sink = Text::new(Style { color: false, width: None });
    let mut session = Session::new(reader.header(), Filter::default(), Box::new(sink));
    while let Some(call) = reader.next_call().expect("a complete recording") {
        session.call(call).expect("the session records nothing");
    }
    String::from_utf8(session.output().clone()).expect("text")
}

#[test]
fn every_recording_gives_the_expected_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings");
    let mut met = 0;
    for entry in fs::read_dir(&folder).expect("the folder of recordings") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            golden::expect(&path.with_extension("expect"), &replay(&path));
            met += 1;
        }
    }
    assert!(met > 0, "no recording in {}", folder.display());
}

/// The demo shows the findings at the end of its recording, where it cannot run the stories as root.
#[test]
fn the_demo_s_recording_ends_with_its_findings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings/demo.jsonl");
    let file = File::open(path).expect("the bundled recording");
    let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
    let mut engine = Engine::new(reader.header().settings.clone());
    while let Some(call) = reader.next_call().expect("a complete recording") {
        run_call(&mut engine, call);
    }
    let mut found = Vec::new();
    for it in engine.findings() {
        assert_eq!(it.stage, Stage::Confirmed, "{it:#?}");
        let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref());
        assert_eq!(pod, Some("report"), "{it:#?}");
        found.push(it.kind.into_str());
    }
    found.sort_unstable();
    assert_eq!(found, DEMO_FINDINGS);
    let incident = |engine: &Engine| {
        let all = Incidents::of(engine.findings()).all();
        let line = |it: &Incident<'_>| it.members.iter().map(|it| it.finding.key.to_string()).collect();
        all.iter().map(line).collect::<Vec<Vec<String>>>()
    };
    let told = incident(&engine);
    let kinds: Vec<Vec<&str>> =
        told.iter().map(|it| it.iter().filter_map(|key| key.split('/').next()).collect()).collect();
    assert_eq!(kinds, [["duplicate_sandbox", "teardown_out_of_order", "leaked_address"]]);
    // The next agent reports the same incident.
    let mut restored = Engine::new(engine.settings().clone());
    engine.dump().into_iter().for_each(|entry| restored.restore(entry));
    assert_eq!(incident(&restored), told);
}

/// A recording is outside data, so a replay must end whatever its times are. Deadlines in a jump of time
/// expire, but the engine must not repeat periodic work when nothing can change.
#[test]
fn a_jump_of_centuries_takes_no_longer_than_one_of_an_hour() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings");
    for recording in ["demo.jsonl", "boots/restart.jsonl"] {
        let calls = |each: &mut dyn FnMut(&Engine, &Call)| {
            let file = File::open(folder.join(recording)).expect("a bundled recording");
            let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
            let mut engine = Engine::new(reader.header().settings.clone());
            while let Some(call) = reader.next_call().expect("a complete recording") {
                each(&engine, &call);
                run_call(&mut engine, call);
            }
        };
        let mut n = 0_usize;
        calls(&mut |engine, call| {
            n += 1;
            if !n.is_multiple_of(97) {
                return;
            }
            // An engine with the same state.
            let mut jumping = Engine::new(engine.settings().clone());
            engine.dump().into_iter().for_each(|entry| jumping.restore(entry));
            let started = Instant::now();
            for at in [Timestamp(Timestamp::LATEST.0 / 2), Timestamp::LATEST] {
                let watermark = Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
                run_call(&mut jumping, Call::Observe(watermark));
                run_call(&mut jumping, Call::Advance(at));
                run_call(&mut jumping, call.clone());
            }
            assert!(started.elapsed() < Duration::from_secs(1), "{recording}: call {n}");
        });
        assert!(n > 1000, "{recording} has {n} calls");
    }
}

fn run_call(engine: &mut Engine, call: Call) {
    engine.call(call);
    while engine.poll().is_some() {}
}
