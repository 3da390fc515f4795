//! `sandprobe diff` on the recordings of the repository. Needs no root.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use probe_user::{
    engine::{Call, Engine},
    recording::{Reader, Writer},
};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.arg("diff").args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn recording(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings").join(name);
    path.to_str().expect("a name").to_owned()
}

/// Returns the objects of the rows, and that of the verdict.
fn compared(a: &str, b: &str) -> (Vec<Value>, Value, Option<i32>) {
    let output = run(&[a, b, "--min-pods", "3", "-o", "json"]);
    let lines = text(&output.stdout).lines();
    let mut rows: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let verdict = rows.pop().unwrap_or_else(|| panic!("nothing: {}", text(&output.stderr)));
    (rows, verdict, output.status.code())
}

#[test]
fn a_recording_is_no_worse_than_itself() {
    for file in ["demo.jsonl", "boots/restart.jsonl"] {
        let (rows, verdict, code) = compared(&recording(file), &recording(file));
        assert_eq!((&verdict["verdict"], code), (&Value::from("no_worse"), Some(0)), "{verdict}");
        assert!(rows.len() > 10, "{rows:?}");
        for row in rows {
            assert_eq!(row["a"], row["b"]);
            assert!(["same", "too_few", "not_judged"].iter().any(|it| row["verdict"] == *it), "{row}");
            if row["name"] == "started / pod" {
                assert_eq!(row["a"]["value"], Value::from(1.0));
            }
        }
    }
}

/// The pods of the demo start sooner than those of an emulated node, and one of them has a second sandbox.
#[test]
fn a_recording_with_other_findings_is_worse() {
    let (rows, verdict, code) = compared(&recording("boots/restart.jsonl"), &recording("demo.jsonl"));
    let expected = ["duplicate_sandbox", "leaked_address", "teardown_out_of_order"];
    assert_eq!((&verdict["worse"], code), (&Value::from(expected.to_vec()), Some(1)));
    let whole = rows.iter().find(|row| row["name"] == "whole start").expect("a row");
    assert_eq!([&whole["verdict"], &whole["a"]["count"]], [&Value::from("better"), &Value::from(13)]);
    let interval = whole["interval"].as_array().expect("an interval");
    let [low, high] = [0, 1].map(|place| interval[place].as_f64().expect("a number"));
    assert!(-30.0 < low && low < high && high < -5.0, "{whole}");
}

#[test]
fn a_recording_whose_pods_start_later_is_worse() {
    let (_, verdict, code) = compared(&recording("demo.jsonl"), &recording("boots/restart.jsonl"));
    let worse = verdict["worse"].as_array().expect("names");
    assert_eq!(code, Some(1));
    for name in ["prepare", "whole start", "cni_failing"] {
        assert!(worse.contains(&Value::from(name)), "{verdict}");
    }
    let output = run(&[&recording("demo.jsonl"), &recording("boots/restart.jsonl"), "--min-pods", "3"]);
    let last = text(&output.stdout).lines().last();
    let worse: Vec<&str> = worse.iter().filter_map(Value::as_str).collect();
    assert_eq!(last, Some(&*format!("worse in B: {}", worse.join(", "))));
}

#[test]
fn too_few_pods_are_not_taken_for_a_comparison() {
    let output = run(&[&recording("demo.jsonl"), &recording("demo.jsonl")]);
    let said =
        "sandprobe: too few to tell of whole start, started / pod: both recordings need 10 (--min-pods)\n";
    assert_eq!((text(&output.stderr), output.status.code()), (said, Some(2)));
}

#[test]
fn a_recording_that_was_cut_off_is_not_taken_for_a_whole_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let whole = fs::read_to_string(recording("boots/restart.jsonl")).expect("a recording");
    let end = whole.trim_end().rfind('\n').expect("lines") + 1;
    let cut = dir.path().join("cut.jsonl");
    fs::write(&cut, &whole[..end]).expect("a file");
    let cut = cut.to_str().expect("a name");
    let output = run(&[&recording("boots/restart.jsonl"), cut, "--min-pods", "3"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.starts_with(&format!("sandprobe: {cut}: ")) && said.lines().count() == 1, "{said}");
    // A finding is there, whatever else B has missed. A may have missed those that only B has.
    assert_eq!(run(&[&recording("demo.jsonl"), cut, "--min-pods", "3"]).status.code(), Some(1));
    let (_, verdict, code) = compared(cut, &recording("demo.jsonl"));
    assert_eq!((&verdict["verdict"], code), (&Value::from("unknown"), Some(2)));
}

#[test]
fn a_recording_with_a_gap_is_not_taken_for_a_whole_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let gapped = dir.path().join("gapped.jsonl");
    let gapped = gapped.to_str().expect("a name");
    let demo = recording("demo.jsonl");
    for (what, gaps, code) in [("channel", Some(1), 2), ("bulk_ring", None, 0)] {
        let lost = format!(r#"{{"lost":{{"what":"{what}","count":"7"}}}}"#);
        let seen = format!(r#"{{"observe":{{"at":"19102500000000","origin":"agent","fact":{lost}}}}}"#);
        let whole = fs::read_to_string(&demo).expect("a recording");
        let end = format!("{seen}\n{{\"advance\":\"19133000000000\"}}\n{{\"end\":\"1045\"}}\n");
        fs::write(gapped, whole.replace("{\"end\":\"1043\"}\n", &end)).expect("a file");
        let (_, verdict, found) = compared(&demo, gapped);
        assert_eq!((verdict["b"]["gaps"].as_u64(), found), (gaps, Some(code)), "{verdict}");
        let said = run(&[&demo, gapped, "--min-pods", "3"]).stderr;
        let expected = format!(
            "sandprobe: {gapped}: 1 gap, in which records of pods were lost: record it again\n\
             sandprobe: cannot tell of blind_spot: a recording may have missed it, or B sees less\n"
        );
        assert_eq!(text(&said), if gaps.is_some() { &expected } else { "" });
    }
}

/// Writes a recording that begins with the state in which the demo first is like this, or at its end.
fn later(file: &Path, is_there: fn(&Engine) -> bool) {
    let demo = fs::read(recording("demo.jsonl")).expect("a recording");
    let mut reader = Reader::open(demo.as_slice()).expect("a recording");
    let mut engine = Engine::new(reader.header().settings.clone());
    let mut writer = Writer::start(reader.header()).expect("a header");
    while !is_there(&engine)
        && let Some(call) = reader.next_call().expect("a whole recording")
    {
        engine.call(call);
        while engine.poll().is_some() {}
    }
    let state = engine.dump().into_iter().map(|entry| Call::Restore(Box::new(entry)));
    state.for_each(|call| writer.write(&call).expect("a call"));
    writer.write(&Call::Advance(engine.now())).expect("a call");
    while let Some(call) = reader.next_call().expect("a whole recording") {
        writer.write(&call).expect("a call");
    }
    fs::write(file, writer.end().expect("an end")).expect("a file");
}

/// `run --record` begins a recording with the state of the agent before it.
#[test]
fn what_was_before_the_recording_is_not_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("later.jsonl");
    let path = file.to_str().expect("a name");
    later(&file, |_| false);
    let (rows, verdict, code) = compared(path, &recording("demo.jsonl"));
    assert_eq!((&verdict["a"]["pods"], code), (&Value::from(0), Some(2)), "{verdict}");
    for row in &rows {
        assert_eq!(row["a"]["count"], Value::from(0), "{row}");
        // It stood before the recording.
        assert_ne!(row["verdict"], Value::from("unknown"), "{row}");
    }
    // The second sandbox of this pod is made later.
    later(&file, has_report);
    let (rows, _, _) = compared(path, &recording("demo.jsonl"));
    let sandboxes = rows.iter().find(|row| row["name"] == "sandboxes / pod").expect("a row");
    assert_eq!((&sandboxes["a"]["value"], &sandboxes["a"]["count"]), (&Value::Null, &Value::from(0)));
}

fn has_report(engine: &Engine) -> bool {
    let pods = engine.pods();
    pods.iter().any(|pod| pod.name.as_deref() == Some("report") && !pod.sandboxes.is_empty())
}

#[test]
fn what_is_no_recording_is_one_clear_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let [absent, other, packed] = ["absent", "other", "packed"].map(|name| dir.path().join(name));
    fs::write(&other, "{}\n").expect("a file");
    fs::write(&packed, b"\x1f\x8b\x08\0").expect("a file");
    for (file, said) in [
        (absent.as_path(), "cannot open"),
        (dir.path(), "is a directory: give the file that sandprobe record wrote"),
        (&other, "not a sandprobe recording"),
        (&packed, "is compressed"),
    ] {
        let output = run(&[&recording("demo.jsonl"), file.to_str().expect("a name")]);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{told}");
        assert!(told.contains(said) && told.lines().count() == 1, "{told}");
    }
    let refused = run(&["a", "b", "--min-pods", "1"]);
    assert_eq!((refused.status.code(), text(&refused.stderr).lines().count()), (Some(2), 1));
    let refused = run(&["-", "-"]);
    let said = "sandprobe: only one of A and B can be \"-\", standard input: give the other as a file\n";
    assert_eq!((refused.status.code(), text(&refused.stderr)), (Some(2), said));
}
