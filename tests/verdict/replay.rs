//! A recorded history is written to a file and replayed, and a new engine is restored from another engine's
//! dump in a file. The tests compare the findings byte by byte, and the outputs in their order.

use probe_user::{
    engine::{Call, Engine, Settings, world::CheckpointEntry},
    model::change::Output,
    recording::{
        Header, Reader, Writer,
        state::{self, About, SavedState, Snapshot},
    },
};
use proptest::prelude::*;

use crate::{
    delivery::lossy,
    drive::Drive,
    model::{AddTurn, DelTurn, History, Turn, turns, without_restarts},
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

/// Writes the calls to a file and reads them back.
fn through_file(calls: &[Call]) -> Vec<Call> {
    let mut writer = Writer::start(&header()).expect("the header");
    for call in calls {
        writer.write(call).expect("a call");
    }
    let file = writer.end().expect("the end");
    let mut reader = Reader::open(&*file).expect("a recording");
    std::iter::from_fn(|| reader.next_call().expect("a complete recording")).collect()
}

/// Makes the calls and returns all outputs.
fn run(engine: &mut Engine, calls: &[Call]) -> Vec<Output> {
    let mut outputs = Vec::new();
    for call in calls {
        engine.call(call.clone());
        outputs.extend(std::iter::from_fn(|| engine.poll()));
    }
    outputs
}

/// Returns the saved findings and starts, as the agent writes them to its state file.
fn findings(engine: &Engine) -> String {
    let Header { made_by, node, boot_id, boot_wall_ns, .. } = header();
    let Some(CheckpointEntry::Engine(state)) = engine.dump().into_iter().next() else {
        panic!("a dump begins with the engine's own state")
    };
    let written_at = state.now;
    let about = About { made_by, node, boot_id, boot_wall_ns, pid: 1, written_at, ended: false };
    let snapshot =
        Snapshot { findings: engine.findings().collect(), starts: engine.starts(), shares: engine.shares() };
    let bytes = state::write(&about, &snapshot).expect("JSON");
    let findings = snapshot.findings.into_iter().cloned().collect();
    let saved = SavedState { findings, starts: snapshot.starts, shares: snapshot.shares };
    assert_eq!(state::read(&bytes).expect("the state as written"), (about, saved));
    String::from_utf8(bytes).expect("JSON is text")
}

/// Makes all calls, and again with an engine that is restored after `cut` of them. Checks that findings and
/// outputs are equal.
fn ensure_same(drive: &Drive, cut: usize) {
    let (calls, found) = (&drive.calls, findings(&drive.engine));

    let mut replayed = Engine::new(Settings::default());
    let outputs = run(&mut replayed, &through_file(calls));
    assert_eq!(findings(&replayed), found);

    let (before, after) = calls.split_at(cut);
    let mut engine = Engine::new(Settings::default());
    let mut restored_outputs = run(&mut engine, before);
    let rows: Vec<Call> = engine.dump().into_iter().map(|entry| Call::Restore(Box::new(entry))).collect();
    let mut restored = Engine::new(Settings::default());
    restored_outputs.extend(run(&mut restored, &through_file(&rows)));
    assert_eq!(findings(&restored), findings(&engine));
    restored_outputs.extend(run(&mut restored, after));
    assert_eq!(findings(&restored), found);
    assert!(restored_outputs == outputs, "the outputs differ after the restore");
}

fn history(turns: &[Turn], seed: u64) -> History {
    let mut history = History::new();
    history.drive.delivery = Box::new(lossy(seed));
    history.run(turns);
    history.end();
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_and_a_restored_engine_give_the_same_findings(turns in turns(), seed: u64, cut: prop::sample::Index) {
        let history = history(&without_restarts(&turns), seed);
        ensure_same(&history.drive, cut.index(history.drive.calls.len()));
    }
}

/// A plugin is asked for its message about a sandbox that is forgotten before the restart (call 116 in the
/// original case).
#[test]
fn a_restored_engine_asks_no_sooner_for_the_next_message() {
    let turns = [
        begin(71),
        Turn::Stop { which: 0, del: DelTurn::Fails },
        Turn::RestartRuntime,
        REMOVE,
        Turn::RestartRuntime,
        Turn::RestartRuntime,
        begin(215),
        begin(0),
        begin(0),
        Turn::Start { which: 0 },
        REMOVE,
        Turn::Kill { which: 0, by: 0 },
        Turn::Stop { which: 0, del: DelTurn::Succeeds },
        begin(0),
        Turn::Exit { which: 13, code: 182 },
        Turn::Remove { which: 71, del: DelTurn::Fails },
    ];
    let history = history(&without_restarts(&turns), 1_760_632_941_011_546_649);
    for cut in (104..128).step_by(4) {
        ensure_same(&history.drive, cut);
    }
}

const REMOVE: Turn = Turn::Remove { which: 0, del: DelTurn::Succeeds };

fn begin(network: u8) -> Turn {
    Turn::Begin { pod: 0, network, add: AddTurn::Succeeds }
}
