//! `sandprobe diff` on the recordings of the repository. Needs no root.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
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
    assert!(-8.0 < low && low < high && high < -5.0, "{whole}");
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
        "sandprobe: too few to tell of whole start, sandboxes / pod: both recordings need 10 (--min-pods)\n";
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
    // What is worse is worse in any case.
    let output = run(&[cut, &recording("demo.jsonl"), "--min-pods", "3"]);
    assert_eq!(output.status.code(), Some(1));
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
}
