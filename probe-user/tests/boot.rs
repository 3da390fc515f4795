//! `sandprobe boot` as it is called: from the history that an agent keeps, and from recordings. Needs no
//! root.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use probe_common::event::class;
use probe_user::{
    engine::{Call, Settings},
    model::{
        fact::{Executed, Fact, Observation, Origin, Task},
        id::TaskKey,
        recovery::{Alive, BootRead, PreviousBoot, RunningPods},
        time::Timestamp,
    },
    recording::{
        Header,
        history::{self, Record},
    },
    session::Session,
    sink::{render::jsonl::Jsonl, select::filter::Filter},
};

const WALL: i64 = 1_795_237_053_000_000_000;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

/// As in the agent's pod.
fn run_in_pod(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.env("SANDPROBE_STATE_DIR", "/nowhere").env("SANDPROBE_SOCKET", "/nowhere.sock");
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

fn exec(seconds: u64, pid: u32, line: &str) -> Observation {
    let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let comm = argv.first().map(|program| program.trim_start_matches("/bin/").to_owned()).unwrap_or_default();
    let class = if comm == "reboot" { class::ORDER } else { class::CALLER };
    let task = Task { key: TaskKey::new(pid, at(seconds).0), tid: pid, comm, ..Task::default() };
    let it = Executed {
        task,
        filename: String::new(),
        argv,
        argv_total: 0,
        class,
        ns_pid: pid,
        pid_ns: 1,
        mnt_ns: 1,
    };
    Observation { at: at(seconds), origin: Origin::Kernel, fact: Fact::Executed(it) }
}

fn agent(seconds: u64, fact: Fact) -> Observation {
    Observation { at: at(seconds), origin: Origin::Agent, fact }
}

/// One boot as an agent lives through it: its recording, and what it keeps.
fn boot(
    id: &str,
    boot_wall_ns: i64,
    before: PreviousBoot,
    kubelet: u64,
    rest: &[Observation],
) -> (Vec<u8>, Record) {
    let header = Header {
        made_by: "0".to_owned(),
        node: "edge-1".to_owned(),
        boot_id: id.to_owned(),
        kernel: "6.1".to_owned(),
        boot_wall_ns,
        settings: Settings::default(),
    };
    let mut session = Session::new(&header, Filter::default(), Box::new(Jsonl));
    session.record(&header).expect("a recording");
    let read = BootRead {
        boot_id: id.to_owned(),
        kernel: "6.1".to_owned(),
        boot_wall_ns,
        before,
        labels: BTreeMap::new(),
    };
    let first = [agent(2, Fact::BootRead(Box::new(read))), exec(kubelet, 500, "/bin/kubelet --v=2")];
    let end = rest.last().map_or(at(kubelet), |seen| seen.at) + std::time::Duration::from_secs(2);
    let watermark = Observation { at: end, origin: Origin::Kernel, fact: Fact::Watermark };
    for seen in first.iter().chain(rest).chain([&watermark]) {
        session.call(Call::Observe(seen.clone())).expect("recorded");
    }
    session.call(Call::Advance(end)).expect("recorded");
    let recovery = session.recovery().clone();
    let mut bytes = std::mem::take(session.recorded().expect("a recording"));
    bytes.extend(session.end_recording().expect("the end"));
    (bytes, Record { made_by: "0".to_owned(), node: "edge-1".to_owned(), recovery })
}

/// Two boots, of which the second was ordered in the first, 12 s before it began.
fn boots() -> [(Vec<u8>, Record); 2] {
    let order = exec(100, 900, "/bin/reboot now");
    let first = boot("a", WALL, PreviousBoot::default(), 9, &[order]);
    let alive =
        Alive { boot_id: "a".to_owned(), wall_ns: WALL + 102_000_000_000, running: RunningPods::default() };
    let before = PreviousBoot::of(Some(&first.1.recovery), Some(alive));
    let second = boot("b", WALL + 112_000_000_000, before, 10, &[]);
    [first, second]
}

fn rows(output: &Output) -> Vec<&str> {
    text(&output.stdout)
        .lines()
        .filter(|line| line.starts_with("2026-11-21 04:5") && line.contains("6.1"))
        .collect()
}

const FIRST: &str =
    "2026-11-21 04:57:33 *  6.1     9000     -           -              -             9.00   -  -  -  -";
const SECOND: &str =
    "2026-11-21 04:59:25    6.1     22000    -           -              -             22.00  -  -  -  -";

fn write(path: &Path, bytes: &[u8]) -> String {
    fs::write(path, bytes).expect("a file");
    path.to_str().expect("a name").to_owned()
}

#[test]
fn recordings_give_the_table_anywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second] = boots();
    let first = write(&dir.path().join("first"), &first.0);
    let second = write(&dir.path().join("second"), &second.0);
    let output = run(&["boot", "--replay", &first, &second]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(rows(&output), [FIRST, SECOND]);
    assert!(text(&output.stdout).contains("ordered by \"/bin/reboot now\" 12.000 s before"));

    // What is missing is named; what is whole is shown.
    let bytes = fs::read(&second).expect("the file");
    let cut = write(&dir.path().join("cut"), &bytes[..bytes.len() - 20]);
    let output = run(&["boot", "--replay", &first, &cut]);
    assert_eq!((output.status.code(), rows(&output)), (Some(1), vec![FIRST, SECOND]));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let output = run(&["boot", "--replay", dir.path().join("none").to_str().expect("a name")]);
    assert_eq!(output.status.code(), Some(2));
}

/// The variables of the agent's pod are not flags that somebody typed.
#[test]
fn recordings_are_read_in_the_agent_s_pod_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, _] = boots();
    let first = write(&dir.path().join("first"), &first.0);
    let output = run_in_pod(&["boot", "--replay", &first]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    // Alone, its columns may be narrower.
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&output).into_iter().map(words).collect::<Vec<_>>(), [words(FIRST)]);
    let output = run_in_pod(&["boot", "--restarts", "--replay", &first]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let output = run_in_pod(&["boot", "--state-dir", "/other", "--replay", &first]);
    let said = "sandprobe: --replay and --state-dir exclude each other: give one of them\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), said));
}

/// With a target, the exit code says whether the last boot met it. These boots have no pods, so nothing is
/// known; but the flag's value must be a duration.
#[test]
fn a_target_is_a_time_and_what_is_not_known_is_no_failure() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second] = boots();
    let first = write(&dir.path().join("first"), &first.0);
    let second = write(&dir.path().join("second"), &second.0);
    let output = run(&["boot", "--target", "1ms", "--replay", &first, &second]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("0 of 2 boots met the target of 0.001 s, 0 missed it, not known of 2"), "{told}");
    let output = run(&["boot", "--target", "30", "--replay", &first]);
    assert_eq!(output.status.code(), Some(2));
    let restart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/boots/restart.jsonl");
    let restart = restart.to_str().expect("a name");
    let output = run(&["boot", "--target", "30s", "--replay", restart]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let said = "sandprobe: the last boot missed the target of 30.000 s by 107.551 s\n";
    assert_eq!(text(&output.stderr), said);
    let output = run(&["boot", "--target", "3m", "--replay", restart]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn the_history_gives_the_same_rows_whatever_a_power_cut_left_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut lines: Vec<u8> = Vec::new();
    for (_, record) in boots() {
        lines.extend(history::line(&record).expect("JSON"));
    }
    lines.extend(b"{\"sum\":\"0123");
    write(&dir.path().join("boots.jsonl"), &lines);
    let output = run(&["boot", "--state-dir", dir.path().to_str().expect("a name")]);
    assert_eq!(output.status.code(), Some(1));
    // This machine's own boot may be a wider row.
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let found: Vec<_> = rows(&output).into_iter().map(words).collect();
    assert_eq!(found, [words(FIRST), words(SECOND)]);
    assert!(
        text(&output.stderr).contains("line 3 was cut off while it was written"),
        "{}",
        text(&output.stderr)
    );
}

/// An older boot does not take the place of the present one.
#[test]
fn without_the_present_boot_the_list_is_incomplete_and_no_target_is_met() {
    let dir = tempfile::tempdir().expect("a folder");
    let [(_, earlier), _] = boots();
    write(&dir.path().join("boots.jsonl"), &history::line(&earlier).expect("JSON"));
    let state = format!("--state-dir={}", dir.path().display());
    let output = run(&["boot", &state, "--host-root", "/no/such/root"]);
    assert_eq!((output.status.code(), rows(&output).len()), (Some(1), 1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("cannot show this boot: "), "{}", text(&output.stderr));
    let output = run(&["boot", &state, "--host-root", "/no/such/root", "--target", "30m"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert!(text(&output.stderr).contains("this boot cannot be judged: "), "{}", text(&output.stderr));
}

/// The node's files do not show restarts of a daemon: if no agent has kept any, that is not "no restart".
#[test]
fn the_restarts_are_those_that_agents_have_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = format!("--state-dir={}", dir.path().display());
    let ask = |more: &[&str]| run(&[&["boot", "--restarts", &state][..], more].concat());
    let output = ask(&[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    let told = text(&output.stderr);
    assert!(told.starts_with("sandprobe: no history of boots (") && told.lines().count() == 1, "{told}");
    let [(_, earlier), _] = boots();
    let mut lines = history::line(&earlier).expect("JSON");
    write(&dir.path().join("boots.jsonl"), &lines);
    let output = ask(&[]);
    let none = "no restart of a runtime or of the kubelet alone was seen\n";
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), none));
    let told = text(&output.stderr);
    assert!(!told.contains("/proc"), "{told}");
    lines.extend(b"{\"sum\":\"0123");
    write(&dir.path().join("boots.jsonl"), &lines);
    let output = ask(&["-o", "json"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    // A flag that means nothing for restarts is refused, not ignored.
    for flags in [&["--html", "-"][..], &["--perfetto", "-"], &["--target", "1s"], &["--group-by", "kernel"]]
    {
        let output = ask(flags);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("cannot be used with"), "{flags:?}: {told}");
    }
    let recorded =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/boots/runtime-restart.jsonl");
    let output = run(&["boot", "--restarts", "--replay", recorded.to_str().expect("a name")]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert!(text(&output.stdout).contains("after SIGTERM from restart.sh["), "{}", text(&output.stdout));
}
