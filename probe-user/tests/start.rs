//! `sandprobe pods` and `explain pod` on what a real run has recorded, and on what an agent keeps. Needs no
//! root.

use std::{
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use probe_user::{
    model::time::Timestamp,
    recording::{
        Reader,
        state::{self, About},
    },
    session::Session,
    sink::{render::jsonl::Jsonl, select::filter::Filter},
};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl")
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// The demo, ended when its first pod runs.
fn begun(dir: &Path) -> PathBuf {
    let whole = fs::read_to_string(demo()).expect("the bundled recording");
    let path = dir.join("begun.jsonl");
    let lines: Vec<&str> = whole.lines().take(LINES).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("a file");
    path
}

const LINES: usize = 200;

#[test]
fn a_pod_s_start_is_a_waterfall() {
    let recording = demo();
    let output = run(&["explain", "pod", "default/job", "--recording", name(&recording)]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(told.starts_with("default/job started in 331 ms, slowest pause (125 ms)\n"), "{told}");
    for phase in ["prepare", "netns", "cni loopback", "cni keyed", "pause", "image main", "cgroup main"] {
        assert!(told.contains(&format!("\n  {phase} ")), "no {phase} in {told}");
    }
    assert_eq!(run(&["explain", "pod", "job", "--recording", name(&recording)]).stdout, output.stdout);
}

#[test]
fn the_phases_of_a_start_are_the_whole_to_the_nanosecond() {
    let recording = demo();
    let output = run(&["explain", "pod", "report", "--recording", name(&recording), "-o", "json"]);
    let line: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ns = |value: &Value| value.as_str().expect("a string").parse::<u64>().expect("a number");
    let phases = line["start"]["phases"].as_array().expect("phases");
    let sum: u64 = phases.iter().map(|phase| ns(&phase["duration_ns"])).sum();
    assert_eq!(sum, ns(&line["start"]["total_ns"]));
    assert_eq!(line["pod"]["name"], "report");
}

#[test]
fn what_an_agent_keeps_explains_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = File::open(demo()).expect("the bundled recording");
    let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
    let header = reader.header().clone();
    let mut session = Session::new(&header, Filter::default(), Box::new(Jsonl));
    while let Some(call) = reader.next_call().expect("a whole recording") {
        session.call(call).expect("nothing is recorded");
    }
    let about = About {
        made_by: header.made_by,
        node: header.node,
        boot_id: header.boot_id,
        boot_wall_ns: session.boot_wall_ns(),
        pid: 1,
        written_at: Timestamp(1),
        ended: true,
    };
    let bytes = state::write(&about, &session.known()).expect("JSON");
    fs::write(dir.path().join("findings.json"), bytes).expect("a file");
    let recording = demo();
    for command in
        [&["explain", "pod", "job"][..], &["explain", "pod", "job", "-o", "json"], &["pods", "--phases"]]
    {
        let kept = run(&[command, &["--state-dir", name(dir.path())]].concat());
        let recorded = run(&[command, &["--recording", name(&recording)]].concat());
        assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stderr));
        assert_eq!(text(&kept.stdout), text(&recorded.stdout));
        assert_eq!(text(&kept.stderr).lines().count(), 1, "that the agent has ended");
    }
}

#[test]
fn pods_are_listed_with_their_starts() {
    let dir = tempfile::tempdir().expect("a folder");
    let recording = begun(dir.path());
    let output = run(&["pods", "--sort", "start", "--recording", name(&recording)]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "it was cut off: {}", text(&output.stderr));
    assert!(told.contains("START") && told.contains("SLOWEST"), "{told}");
    let row = told.lines().find(|line| line.contains("job")).expect("its row");
    assert!(row.contains("331 ms") && row.contains("pause 125 ms"), "{row}");
    let slow = run(&["pods", "--slow", "--recording", name(&recording)]);
    assert_eq!(text(&slow.stdout).lines().count(), 1, "none took more than 5 s");
}

#[test]
fn what_cannot_be_told_is_one_line() {
    let recording = demo();
    let recording = name(&recording);
    for (command, words) in [
        (&["explain", "pod", "nobody", "--recording", recording][..], "no start of a pod"),
        (&["explain", "pod", "--recording", recording], "[NAMESPACE/]NAME"),
        (&["pods", "--phases", "--state-dir", "none"], "--recording"),
        (&["pods", "--phases", "--slow", "--recording", recording], "--slow"),
    ] {
        let output = run(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}
