//! Old recordings: converts a line of an older format to the next one.

use serde_json::{Map, Value};

use super::VERSION;

/// Converts one line, the header or any later one, from a version to the next.
pub(super) type Fixup = fn(&mut Value);

/// The fixup at index `n` converts from version `n + 1` to `n + 2`. Raising `VERSION` without adding a fixup
/// does not compile.
pub(super) const FIXUPS: [Fixup; VERSION as usize - 1] = [named_as_in_events];

/// Format 2 gives processes and phases the names that events give them. Formats 1 of a recording and of the
/// history of boots had names of their own.
pub(super) fn named_as_in_events(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(named_as_in_events),
        Value::Object(object) => {
            object.values_mut().for_each(named_as_in_events);
            if has_exactly(object, &["key", "parent", "comm"]) {
                rename_process(object);
            } else if has_exactly(object, &["kind", "begin", "end"]) {
                rename_part(object);
            } else {
                rename_cause(object);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether an object has these members, and no others but `waits`.
fn has_exactly(object: &Map<String, Value>, names: &[&str]) -> bool {
    let others = object.keys().filter(|key| !names.contains(&key.as_str()));
    names.iter().all(|name| object.contains_key(*name)) && others.into_iter().all(|key| key == "waits")
}

fn rename_process(object: &mut Map<String, Value>) {
    if let Some(key) = object.remove("key") {
        let mut key = task(key);
        object.append(&mut key);
    }
    let parent = task(object.remove("parent").unwrap_or_default());
    if parent.get("pid") != Some(&Value::from(0)) {
        object.insert("parent".to_owned(), Value::Object(parent));
    }
}

/// Returns the members that name a task. Its start is left out if it is not known.
fn task(mut key: Value) -> Map<String, Value> {
    let mut named = Map::new();
    named.insert("pid".to_owned(), key["pid"].take());
    if key["start"] != "0" {
        named.insert("start_ns".to_owned(), key["start"].take());
    }
    named
}

fn rename_part(object: &mut Map<String, Value>) {
    let [begin, end] = ["begin", "end"].map(|name| nanoseconds(object.get(name)));
    object.remove("end");
    object.insert("duration_ns".to_owned(), Value::from(end.saturating_sub(begin).to_string()));
    rename(object, &[("kind", "part"), ("begin", "begin_ns"), ("waits", "waits_for")]);
}

fn nanoseconds(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Renames what the cause of a phase has, and moves the counters from the cause to the phase.
fn rename_cause(phase: &mut Map<String, Value>) {
    let Some(Value::Object(cause)) = phase.get_mut("cause") else { return };
    rename(cause, &[("wasted", "failed_ns"), ("took", "plugin_ns"), ("teardown", "teardown_ns")]);
    if let Some(pressure) = cause.remove("pressure") {
        phase.insert("pressure".to_owned(), pressure);
    }
}

fn rename(object: &mut Map<String, Value>, names: &[(&str, &str)]) {
    for (from, to) in names {
        if let Some(value) = object.remove(*from) {
            object.insert((*to).to_owned(), value);
        }
    }
}

/// Converts `line` from version `from` to the newest version of the table.
pub(super) fn upgrade(line: &mut Value, from: u32, table: &[Fixup]) {
    let done = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
    for fixup in table.iter().skip(done) {
        fixup(line);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Fixup, named_as_in_events, upgrade};
    use crate::model::{phase::Phase, process::Process};

    /// Two typical changes of a format: a renamed member, then a new one.
    const TABLE: [Fixup; 2] = [
        |line| {
            if let Some(object) = line.as_object_mut()
                && let Some(value) = object.remove("tick")
            {
                object.insert("advance".to_owned(), value);
            }
        },
        |line| line["new"] = Value::from(true),
    ];

    #[test]
    fn processes_of_format_1_are_read() {
        let task = |pid| json!({ "start": "7", "pid": pid });
        let mut line = json!({ "told": [{ "key": task(12), "parent": task(1), "comm": "runc" }, {
            "key": { "start": "0", "pid": 0 }, "parent": { "start": "0", "pid": 0 }, "comm": ""
        }] });
        named_as_in_events(&mut line);
        let read: Vec<Process> = serde_json::from_value(line["told"].take()).expect("two processes");
        assert_eq!(
            (read[0].key.pid, read[0].key.start, read[0].parent.pid, &*read[0].comm),
            (12, 7, 1, "runc")
        );
        assert_eq!(read[1], Process::default());
        let mut other = json!({ "key": task(1), "parent": task(1), "comm": "runc", "cgroup": "5" });
        let before = other.clone();
        named_as_in_events(&mut other);
        assert_eq!(other, before, "a task has further members");
    }

    #[test]
    fn phases_of_format_1_are_read() {
        let mut line = json!({
            "kind": "image", "begin": "100", "end": "900", "gapped": false,
            "cause": {
                "adds": 2, "failed": 1, "wasted": "5", "took": "6", "sandboxes": 0, "runs": 0, "teardown": "7",
                "pressure": { "cpu": { "used": "8", "throttled": "9", "periods": "3", "limit": 250 } },
            },
            "parts": [{ "kind": "pull", "begin": "100", "end": "400" }, {
                "kind": "wait", "begin": "400", "end": "900", "waits": { "retry": { "failed": 2 } }
            }],
        });
        named_as_in_events(&mut line);
        let read: Phase = serde_json::from_value(line).expect("a phase");
        assert_eq!(read.cause.wasted.as_nanos(), 5);
        assert_eq!((read.cause.took.as_nanos(), read.cause.teardown.as_nanos()), (6, 7));
        let cpu = read.pressure.cpu.expect("the counters");
        assert_eq!(
            (cpu.used.as_nanos(), cpu.throttled.as_nanos(), cpu.periods, cpu.limit),
            (8, 9, 3, Some(250))
        );
        assert_eq!(read.parts[0].took.as_nanos(), 300);
        assert_eq!((read.parts[1].begin.0, read.parts[1].waits.is_some()), (400, true));
    }

    #[test]
    fn a_line_goes_through_every_version_after_its_own() {
        let upgraded = |from| {
            let mut line = json!({ "tick": "1" });
            upgrade(&mut line, from, &TABLE);
            line
        };
        assert_eq!(upgraded(1), json!({ "advance": "1", "new": true }));
        assert_eq!(upgraded(2), json!({ "tick": "1", "new": true }));
        assert_eq!(upgraded(3), json!({ "tick": "1" }));
    }
}
