//! Facts and kept states of a node, from recordings, and how one is changed by parts of another.

use std::sync::LazyLock;

use probe_user::{
    engine::{Call, Engine, world::CheckpointEntry},
    model::fact::{Fact, Observation},
    recording::Reader,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{cursor::Cursor, player::taken};

/// A consistent history of pods that live and leak.
pub(super) const DEMO: &[u8] = include_bytes!("../../data/recordings/demo.jsonl");
/// A recording with one line of every form.
pub(super) const FORMS: &[u8] = include_bytes!("../../../probe-engine/tests/data/format-1.jsonl");

/// The number of the demo's calls between two kept states.
const BETWEEN: usize = 60;

/// All facts except those that only report the time.
pub(super) static FACTS: LazyLock<Vec<Observation>> = LazyLock::new(|| {
    let seen = [DEMO, FORMS].into_iter().flat_map(calls).filter_map(|call| match call {
        Call::Observe(seen) if seen.fact != Fact::Watermark => Some(seen),
        Call::Observe(_) | Call::Advance(_) | Call::Restore(_) => None,
    });
    seen.collect()
});

/// The state of an engine at several moments of the demo.
pub(super) static STATES: LazyLock<Vec<Vec<CheckpointEntry>>> = LazyLock::new(|| {
    let mut engine = Engine::new(Reader::open(DEMO).expect("the demo").header().settings.clone());
    let mut states = Vec::new();
    for (number, call) in calls(DEMO).into_iter().enumerate() {
        engine.call(call);
        taken(&mut engine);
        if number % BETWEEN == BETWEEN - 1 {
            states.push(engine.dump());
        }
    }
    states
});

/// Returns all calls of a recording.
pub(super) fn calls(recording: &[u8]) -> Vec<Call> {
    let mut reader = Reader::open(recording).expect("a recording");
    std::iter::from_fn(|| reader.next_call().expect("a call")).collect()
}

/// Replaces one of the scalars of `into` by one of `from`. `None` if the result is not valid.
pub(super) fn spliced<T: Serialize + DeserializeOwned>(
    into: &T,
    from: &impl Serialize,
    choice: &mut Cursor<'_>,
) -> Option<T> {
    let mut value = serde_json::to_value(into).ok()?;
    let mut other = serde_json::to_value(from).ok()?;
    let number = choice.below(scalars(&mut other).len().max(1));
    let given = std::mem::take(*scalars(&mut other).get_mut(number)?);
    let mut places = scalars(&mut value);
    let number = choice.below(places.len().max(1));
    **places.get_mut(number)? = given;
    serde_json::from_value(value).ok()
}

/// Returns all values without parts, in order.
fn scalars(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![value],
        Value::Array(parts) => parts.iter_mut().flat_map(scalars).collect(),
        Value::Object(parts) => parts.values_mut().flat_map(scalars).collect(),
    }
}
