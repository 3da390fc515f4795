//! What the program answers to bad input: one clear line, and the exit code that it documents. Needs no root.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

fn sandprobe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    sandprobe(arguments).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Fails with `code` and one line that has all of `words`.
#[track_caller]
fn complains(output: &Output, code: i32, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sandprobe: "), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

const HEADER: &str = concat!(
    r#"{"sandprobe_recording":1,"made_by":"0.1.0","node":"n","boot_id":"b","kernel":"6.1","#,
    r#""boot_wall_ns":"1795237000000000000","settings":{"hold_ns":"0","first_seq":"1","limits":{"leak_grace_ns":"120000000000","#,
    r#""stuck_after_ns":"60000000000","cni_slow_ns":"10000000000","cni_queue":20}}}"#
);

/// Something was lost, `n` times: each time is reported.
fn calls(n: u32) -> String {
    let call = |n| {
        format!(
            "{{\"observe\":{{\"at\":\"{}\",\"origin\":\"agent\",\
             \"fact\":{{\"lost\":{{\"what\":\"bulk_ring\",\"count\":\"3\"}}}}}}}}\n",
            n * 1_000
        )
    };
    (1..=n).map(call).collect()
}

fn whole(n: u32) -> String {
    format!("{HEADER}\n{}{{\"end\":\"{n}\"}}\n", calls(n))
}

fn file(dir: &tempfile::TempDir, contents: &[u8]) -> String {
    let path = dir.path().join("recording");
    fs::write(&path, contents).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn usage_errors_are_one_line() {
    complains(&run(&["--no-such-flag"]), 2, &["--no-such-flag", "--help"]);
    complains(&run(&["replay", "x", "--no-such-flag"]), 2, &["--no-such-flag"]);
    complains(&run(&["no-such-command"]), 2, &["no-such-command"]);
    complains(&run(&["replay"]), 2, &["FILE"]);
    complains(&run(&["replay", "x", "--event", "no.such"]), 2, &["no.such"]);
    complains(
        &run(&["replay", "x", "--event-rate", "0"]),
        2,
        &["'0' for '--event-rate <N>'", "from 1 to 1000000"],
    );
}

#[test]
fn help_documents_the_exit_codes() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("Exit codes:\n  0 "));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn a_recording_is_replayed_the_same_each_time() {
    let dir = folder();
    let file = file(&dir, whole(3).as_bytes());
    let output = run(&["replay", &file, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 3);
    assert_eq!(run(&["replay", &file, "-o", "json"]).stdout, output.stdout);
    assert_eq!(run(&["replay", &file, "-o", "json", "--pace"]).stdout, output.stdout);
    let piped = sandprobe(&["replay", "-", "-o", "json"]).stdin(File::open(&file).expect("a file")).output();
    assert_eq!(piped.expect("a run").stdout, output.stdout);
}

#[test]
fn text_that_is_not_for_a_terminal_is_plain() {
    let dir = folder();
    let output = run(&["replay", &file(&dir, whole(2).as_bytes())]);
    let told = text(&output.stdout);
    assert_eq!(told.lines().count(), 3);
    assert!(told.starts_with("TIME (UTC)") && !told.contains('\x1b'), "{told}");
}

#[test]
fn a_truncated_recording_gives_what_is_whole() {
    let dir = folder();
    let file = |contents: &str| file(&dir, contents.as_bytes());
    let whole = whole(4);
    let output = run(&["replay", &file(&whole[..whole.len() - 20]), "-o", "json"]);
    complains(&output, 1, &["cut off", "recording"]);
    assert_eq!(text(&output.stdout).lines().count(), 3, "the fourth was cut");
    let output = run(&["replay", &file(&format!("{HEADER}\n")), "-o", "json"]);
    complains(&output, 1, &["cut off after line 1"]);
}

/// What is missing may be what was asked for.
#[test]
fn each_command_that_reads_a_truncated_recording_ends_with_1() {
    let dir = folder();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
    let demo = fs::read_to_string(demo).expect("the recording");
    let end = demo.trim_end().rfind('\n').expect("lines") + 1;
    let whole = dir.path().join("whole");
    fs::write(&whole, &demo).expect("a file");
    let cut = file(&dir, &demo.as_bytes()[..end]);
    for command in [
        &["findings"][..],
        &["findings", "-o", "json"],
        &["explain", "leaked_address"],
        &["explain", "pod", "job"],
        &["pods"],
        &["pods", "--phases"],
        &["pods", "--html", "-"],
    ] {
        let output = run(&[command, &["--recording", &cut]].concat());
        complains(&output, 1, &["cut off", "recording"]);
        assert!(!output.stdout.is_empty(), "{command:?}: what is whole is told");
        let output = run(&[command, &["--recording", whole.to_str().expect("a name")]].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let dir = folder();
    let file = |contents: &[u8]| file(&dir, contents);
    complains(&run(&["replay", &file(b"\x7fELF\x02\x01")]), 2, &["not a sandprobe recording"]);
    complains(&run(&["replay", &file(b"")]), 2, &["empty: no recording"]);
    complains(&run(&["replay", &file(&vec![0; 3 << 20])]), 2, &["not a sandprobe recording"]);
    let newer = HEADER.replacen(":1", ":999", 1);
    complains(&run(&["replay", &file(newer.as_bytes())]), 2, &["not a sandprobe recording"]);
    complains(&run(&["replay", &file((newer + "\n").as_bytes())]), 2, &["format 999", "newer"]);
    let newest = HEADER.replacen(":1", ":99999999999", 1) + "\n";
    complains(&run(&["replay", &file(newest.as_bytes())]), 2, &["format 99999999999", "newer"]);
    let bad = format!("{HEADER}\n{}nonsense\n", calls(1));
    let output = run(&["replay", &file(bad.as_bytes()), "-o", "json"]);
    complains(&output, 2, &["line 3"]);
    assert_eq!(text(&output.stdout).lines().count(), 1, "what came before it was told");

    complains(&run(&["replay", "/no/such/file"]), 2, &["/no/such/file", "No such file"]);
    complains(&run(&["replay", dir.path().to_str().expect("a name")]), 2, &["directory"]);
}

/// Nobody can tell a pipe that waits from a command that works.
#[test]
fn a_recording_from_a_pipe_is_waited_for() {
    let dir = folder();
    let mut runs = Vec::new();
    for (name, command) in [("replay", &["replay"][..]), ("findings", &["findings", "--recording"])] {
        let pipe = dir.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let mut command = sandprobe(command);
        let run = command.arg(&pipe).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        runs.push((pipe, run.expect("a run")));
    }
    for (pipe, mut run) in runs {
        let mut said = String::new();
        BufReader::new(run.stderr.take().expect("piped")).read_line(&mut said).expect("text");
        let waits = format!("sandprobe: {} is a pipe that nobody writes to yet: waiting; ", pipe.display());
        assert!(said.starts_with(&waits), "{said}");
        fs::write(&pipe, whole(3)).expect("it is read");
        assert_eq!(run.wait().expect("an end").code(), Some(0));
    }
}

/// A shell that waits for the command must learn that it did not finish (143). SIGINT is left out: the parent
/// of the tests may ignore it.
#[test]
fn a_signal_kills_what_only_reads() {
    let dir = folder();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let mut child = sandprobe(&["replay"]).arg(&pipe).spawn().expect("a run");
    let id = i32::try_from(child.id()).expect("an id");
    kill(Pid::from_raw(id), Signal::SIGTERM).expect("it runs");
    assert_eq!(child.wait().expect("an end").signal(), Some(Signal::SIGTERM as i32));
    let help = run(&["--help"]);
    let said = "run, watch, record and top: ended by ctrl-C or SIGTERM (other commands die of them)\n";
    assert!(text(&help.stdout).contains(said), "{help:?}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = folder();
    let file = file(&dir, whole(20_000).as_bytes());
    let mut child = sandprobe(&["replay", &file, "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a run");
    let mut first = [0; 10];
    child.stdout.take().expect("piped").read_exact(&mut first).expect("a beginning");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let dir = folder();
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let output =
        sandprobe(&["replay", &file(&dir, whole(3).as_bytes())]).stdout(full).output().expect("a run");
    complains(&output, 2, &["standard output", "No space left"]);
    for flag in ["--help", "--version"] {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        complains(
            &sandprobe(&[flag]).stdout(full).output().expect("a run"),
            2,
            &["standard output", "No space left"],
        );
    }
}

#[cfg(feature = "live")]
mod live {
    use std::os::unix::process::CommandExt;

    use super::{complains, run, sandprobe};

    #[test]
    fn usage_errors_of_live_commands_are_one_line() {
        complains(&run(&["watch", "--hold", "1h"]), 2, &["--hold", "more than 60 s"]);
        complains(&run(&["watch", "-o", "yaml"]), 2, &["yaml"]);
        complains(&run(&["record"]), 2, &["FILE"]);
        complains(&run(&["run", "--node", "a\u{1b}[31m\nb"]), 2, &["--node", "not a valid node name"]);
    }

    /// Nothing is removed: this means no pins, not those of the default folder.
    #[test]
    fn without_pins_there_is_nothing_to_detach() {
        let output = run(&["detach", "--pin-dir", "none"]);
        assert_eq!((output.status.code(), super::text(&output.stderr)), (Some(0), ""));
        assert!(super::text(&output.stdout).starts_with("nothing to detach: --pin-dir none"), "{output:?}");
    }

    #[test]
    fn a_host_root_that_cannot_be_used_is_named() {
        for command in [&["run"][..], &["watch"], &["record", "/dev/null"], &["pods"]] {
            let arguments = [command, &["--host-root", "/no/such/root"]].concat();
            complains(&run(&arguments), 2, &["/no/such/root", "--host-root"]);
        }
        let empty = super::folder();
        let empty = empty.path().to_str().expect("a name");
        complains(&run(&["pods", "--host-root", empty]), 2, &["/proc/1", "--host-root"]);
    }

    #[test]
    fn without_privileges_the_line_says_what_is_needed() {
        // As the user nobody: root may run this test.
        let mut command = sandprobe(&["watch"]);
        if std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
            // The program may be where that user has no access.
            let copy = super::folder();
            let path = copy.path().join("sandprobe");
            // Copies in another process: a file that this process has open for writing would stay so in a
            // child that another test starts meanwhile, and could not be executed.
            let copied =
                std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_sandprobe")).arg(&path).status();
            assert!(copied.expect("cp").success());
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(copy.path(), open).expect("an own folder");
            command = std::process::Command::new(path);
            command.arg("watch").uid(65_534).gid(65_534);
            complains(&command.output().expect("a run"), 2, &["root"]);
            return;
        }
        complains(&command.output().expect("a run"), 2, &["root"]);
    }
}

#[test]
fn what_cannot_be_a_pod_is_no_pod_without_findings() {
    let dir = folder();
    let file = file(&dir, whole(3).as_bytes());
    for pod in ["", "/", "a/", "/b", "a/b/c"] {
        for command in [&["findings", "--pod"][..], &["explain", "pod"]] {
            let output = run(&[command, &[pod, "--recording", &file]].concat());
            complains(&output, 2, &["NAME or NAMESPACE/NAME"]);
        }
    }
    for pod in ["b", "a/b"] {
        assert_eq!(run(&["findings", "--recording", &file, "--pod", pod]).status.code(), Some(0), "{pod}");
    }
}

#[test]
fn a_replay_is_of_a_pod_by_either_name_and_says_that_nothing_matched() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
    let demo = demo.to_str().expect("a name");
    let replay = |more: &[&str]| {
        let output = run(&[&["replay", demo, "-o", "json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{more:?}");
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (by_name, _) = replay(&["--pod", "report"]);
    assert!(by_name.lines().count() > 5, "{by_name}");
    assert_eq!(replay(&["--pod", "default/report"]), (by_name, String::new()));
    let (told, said) = replay(&["--pod", "other/report", "--event", "pod.gone"]);
    assert_eq!((&*told, &*said), ("", "sandprobe: no event matched --pod other/report --event pod.gone\n"));
    complains(&run(&["replay", demo, "--pod", "a/b/c"]), 2, &["NAME or NAMESPACE/NAME"]);
}

/// Numbers at their limits, as no agent writes them: nothing is counted beyond the largest number.
#[test]
fn numbers_at_their_ends_do_no_harm() {
    let dir = tempfile::tempdir().expect("a folder");
    let last = format!("\"{}\"", u64::MAX);
    let header = HEADER.replace(r#""first_seq":"1""#, &format!(r#""first_seq":{last}"#));
    let calls = calls(3).replace(r#""count":"3""#, &format!(r#""count":{last}"#));
    let path = file(&dir, format!("{header}\n{calls}{{\"end\":\"3\"}}\n").as_bytes());
    let output = run(&["replay", &path]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{}", text(&output.stdout));
}

/// A terminal acts on what it is shown, whoever wrote it.
#[test]
fn what_a_file_says_reaches_no_terminal_as_it_stands() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = "{\"\\u001b]0;mine\\u0007\\u009b2J\\u202e\":1}\n";
    let path = file(&dir, format!("{HEADER}\n{line}").as_bytes());
    let replayed = run(&["replay", &path]);
    complains(&replayed, 2, &["line 2", r"\u{1b}]0;mine\u{7}\u{9b}2J\u{202e}"]);
    let absent = run(&["replay", "/nowhere/\u{1b}[31m"]);
    complains(&absent, 2, &[r"/nowhere/\u{1b}[31m"]);
    for said in [replayed.stderr, absent.stderr] {
        assert!(!text(&said).trim_end().contains(char::is_control), "{said:?}");
    }
}

/// A time that no clock shows would have an endless number of deadlines before it; one that a clock can show
/// does not.
#[test]
fn a_recording_that_jumps_by_centuries_is_soon_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let begun = std::time::Instant::now();
    for (at, code) in [(u64::MAX / 2, 0), (u64::MAX / 2 + 1, 2), (u64::MAX, 2)] {
        let calls = calls(1);
        let path =
            file(&dir, format!("{HEADER}\n{calls}{{\"advance\":\"{at}\"}}\n{{\"end\":\"2\"}}\n").as_bytes());
        let replay: &[&str] = &["replay", &path];
        for command in [replay, &["findings", "--recording", &path], &["boot", "--replay", &path]] {
            let output = run(command);
            assert_eq!(output.status.code(), Some(code), "{at}: {output:?}");
            if code != 0 {
                complains(&output, code, &["line 3", "is no time", "9223372036854775807"]);
            }
        }
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}
