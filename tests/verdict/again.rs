//! The same once more: a history that was recorded is replayed, and an engine takes over what another one knew, both
//! by way of the file. Findings are compared byte by byte, and all that was said in its order.

use probe_user::{
    engine::{
        Call, Engine, Settings,
        world::{CheckpointEntry, EngineState},
    },
    model::change::Output,
    recording::{
        Header, Reader, Writer,
        state::{self, About, SavedState, Snapshot},
    },
};
use proptest::prelude::*;

use crate::{
    model::{History, steady, turns},
    way::torn,
};

fn header() -> Header {
    Header {
        made_by: "0.1.0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "9f3c6e1a-0000-4000-8000-000000000001".to_owned(),
        kernel: "6.1.0".to_owned(),
        boot_wall_ns: 1_795_000_000_000_000_000,
        settings: Settings::default(),
    }
}

/// The calls as they come back from a file.
fn through_file(calls: &[Call]) -> Vec<Call> {
    let mut writer = Writer::start(&header()).expect("the header");
    for call in calls {
        writer.write(call).expect("a call");
    }
    let file = writer.end().expect("the end");
    let mut reader = Reader::open(&*file).expect("a recording");
    std::iter::from_fn(|| reader.next_call().expect("a whole recording")).collect()
}

/// Makes the calls, and gives all that is said.
fn play(engine: &mut Engine, calls: &[Call]) -> Vec<Output> {
    let mut said = Vec::new();
    for call in calls {
        engine.call(call.clone());
        said.extend(std::iter::from_fn(|| engine.poll()));
    }
    said
}

/// The findings and starts as they are kept for whoever asks.
fn findings(engine: &Engine) -> String {
    let Header { made_by, node, boot_id, boot_wall_ns, .. } = header();
    let Some(CheckpointEntry::Engine(EngineState { now: written_at, .. })) = engine.dump().first().cloned()
    else {
        panic!("a dump begins with the engine's own state")
    };
    let about = About { made_by, node, boot_id, boot_wall_ns, pid: 1, written_at, ended: false };
    let known =
        Snapshot { findings: engine.findings().collect(), starts: engine.starts(), shares: engine.shares() };
    let bytes = state::write(&about, &known).expect("JSON");
    let findings = known.findings.into_iter().cloned().collect();
    let kept = SavedState { findings, starts: known.starts, shares: known.shares };
    assert_eq!(state::read(&bytes).expect("what was written"), (about, kept));
    String::from_utf8(bytes).expect("JSON is text")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_and_a_restored_engine_find_the_same(turns in turns(), seed: u64, cut: prop::sample::Index) {
        let mut history = History::new();
        history.drive.way = Box::new(torn(seed));
        history.play(&steady(&turns));
        history.end();
        let (calls, found) = (&history.drive.calls, findings(&history.drive.engine));

        let mut replayed = Engine::new(Settings::default());
        let said = play(&mut replayed, &through_file(calls));
        prop_assert_eq!(findings(&replayed), found.as_str());

        let (before, after) = calls.split_at(cut.index(calls.len()));
        let mut engine = Engine::new(Settings::default());
        let mut again = play(&mut engine, before);
        let rows: Vec<Call> = engine.dump().into_iter().map(|entry| Call::Restore(Box::new(entry))).collect();
        let mut restored = Engine::new(Settings::default());
        again.extend(play(&mut restored, &through_file(&rows)));
        prop_assert_eq!(findings(&restored), findings(&engine));
        again.extend(play(&mut restored, after));
        prop_assert_eq!(findings(&restored), found);
        prop_assert!(again == said, "it said something else after it had been restored");
    }
}
