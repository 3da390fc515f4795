//! `--html` and `--perfetto` as they are called: where the bytes go, and what is said when they cannot. Needs
//! no root.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn demo() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recordings/demo.jsonl").to_owned()
}

fn pods<'a>(recording: &'a str, rest: &[&'a str]) -> Output {
    run(&[&["pods", "--recording", recording][..], rest].concat())
}

#[test]
fn a_recording_s_starts_are_drawn_those_of_pods_that_are_gone_too() {
    let recording = demo();
    let page = pods(&recording, &["--html", "-", "--sort", "start"]);
    assert_eq!(page.status.code(), Some(0), "{}", text(&page.stderr));
    let page = text(&page.stdout);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let rows: Vec<usize> =
        ["default/job", "default/report", "default/agent"].iter().filter_map(|it| page.find(it)).collect();
    assert!(rows.len() == 3 && rows.is_sorted(), "the slowest first: {rows:?}");

    let trace = pods(&recording, &["--perfetto", "-"]);
    let trace: Value = serde_json::from_slice(&trace.stdout).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let named = |name: &str| events.iter().any(|it| it["args"]["name"] == name);
    assert!(named("default/job") && named("sandbox") && named("container main"));
    let slow = pods(&recording, &["--html", "-", "--slow"]);
    assert!(text(&slow.stdout).contains("There is nothing to draw."), "none took more than 5 s");
}

#[test]
fn a_boot_is_drawn_from_its_recording() {
    let dir = tempfile::tempdir().expect("a folder");
    let (html, json) = (dir.path().join("boot.html"), dir.path().join("boot.json"));
    let recording = demo();
    let output = run(&["boot", "--replay", &recording, "--html", name(&html), "--perfetto", name(&json)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "the pictures come instead");
    let page = fs::read_to_string(html).expect("a page");
    assert!(page.contains("<h1>What each restart cost</h1>") && page.contains("demo-node"));
    let trace: Value = serde_json::from_slice(&fs::read(json).expect("a trace")).expect("JSON");
    assert!(trace["traceEvents"].is_array());
}

#[test]
fn a_file_is_replaced_as_a_whole_and_nothing_else_is_touched() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, link) = (dir.path().join("page"), dir.path().join("link"));
    fs::write(&file, "before").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("its mode");
    let reader = fs::File::open(&file).expect("a file");
    symlink("page", &link).expect("a link");
    let recording = demo();
    assert_eq!(pods(&recording, &["--html", name(&link)]).status.code(), Some(0));
    assert!(fs::read_to_string(&file).expect("a page").ends_with("</html>\n"));
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink(), "what it leads to is replaced");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o640);
    assert_eq!(std::io::read_to_string(reader).expect("the old one"), "before", "who reads is not disturbed");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 2, "nothing else is left");
    // Root's `rename` would put a file there for everybody.
    assert_eq!(pods(&recording, &["--html", "/dev/null"]).status.code(), Some(0));
    assert!(fs::metadata("/dev/null").expect("a device").file_type().is_char_device());
}

#[test]
fn what_cannot_be_drawn_is_one_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let below = dir.path().join("none/page");
    let recording = demo();
    for (rest, words) in [
        (&["--html", name(&below)][..], "cannot write"),
        (&["--html", name(dir.path())], "cannot write"),
        (&["--html", "-", "--perfetto", "-"], "same file"),
        (&["--html", "-", "--phases"], "--phases"),
        (&["--perfetto", "-", "-o", "json"], "--output"),
    ] {
        let output = pods(&recording, rest);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left");
}
