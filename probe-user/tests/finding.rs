//! `sandprobe findings` and `explain`, as they are typed: what they read, what they say, how they end. Needs
//! no root.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output, Stdio},
};

use probe_user::{
    engine::{Call, Settings},
    model::{
        fact::{
            Bound, Fact, Holder, Observation, Origin, ProcessFound, Reservation, ReservationState,
            RuntimeKind, RuntimeRead, Store, StoreKind, StoreRead, Task,
        },
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
    recording::{
        Header, Writer,
        state::{self, About},
    },
    session::Session,
    sink::{render::jsonl::Jsonl, select::filter::Filter},
};

const NETWORKS: &str = "/var/lib/cni/networks/podnet";

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn seconds(at: u64) -> Timestamp {
    Timestamp(at * 1_000_000_000)
}

fn header() -> Header {
    Header {
        made_by: "0.1.0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "b".to_owned(),
        kernel: "6.1".to_owned(),
        boot_wall_ns: 1_795_237_000_000_000_000,
        settings: Settings::default(),
    }
}

fn id(digit: char) -> ContainerId {
    ContainerId::parse(&digit.to_string().repeat(64)).expect("an id")
}

/// Two addresses are in a store, and no runtime knows their sandboxes.
fn calls() -> Vec<Call> {
    let seen = |at, fact| Call::Observe(Observation { at: seconds(at), origin: Origin::Listed, fact });
    let reservation = |last, digit| Reservation {
        address: [10, 88, 0, last].into(),
        holder: Some(Holder { container: id(digit), ifname: "eth0".to_owned() }),
        since: seconds(5),
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    };
    let runtime = Fact::RuntimeRead(RuntimeRead {
        place: "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes".to_owned(),
        kind: Some(RuntimeKind::Containerd),
        sandboxes: Vec::new(),
        complete: true,
        unread: 0,
    });
    let store = Fact::StoreRead(StoreRead {
        store: Store {
            kind: StoreKind::HostLocal,
            path: NETWORKS.to_owned(),
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        },
        reservations: vec![reservation(5, 'a'), reservation(6, 'b')],
        complete: true,
    });
    let daemon = Fact::ProcessFound(ProcessFound {
        forged: false,
        task: Task {
            key: TaskKey::new(564, 1_000_000_000),
            comm: "containerd".to_owned(),
            ..Task::default()
        },
        argv: vec!["/usr/bin/containerd".to_owned()],
        cgroup_path: "/system.slice/containerd.service".to_owned(),
        ns_pid: 564,
        cni: None,
        filename: "/usr/bin/containerd".to_owned(),
    });
    vec![
        seen(10, daemon),
        seen(11, runtime.clone()),
        seen(12, store.clone()),
        Call::Advance(seconds(200)),
        seen(201, runtime),
        seen(202, store),
        Call::Advance(seconds(203)),
    ]
}

fn recording(dir: &Path) -> String {
    let mut writer = Writer::start(&header()).expect("a header");
    calls().iter().for_each(|call| writer.write(call).expect("a call"));
    let path = dir.join("recording");
    fs::write(&path, writer.end().expect("an end")).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn keep(dir: &Path, ended: bool) -> String {
    let Header { made_by, node, boot_id, boot_wall_ns, .. } = header();
    let about = About { made_by, node, boot_id, boot_wall_ns, pid: 1, written_at: seconds(203), ended };
    // As an agent has it that saw the same.
    let mut session = Session::new(&header(), Filter::default(), Box::new(Jsonl));
    calls().into_iter().for_each(|call| session.call(call).expect("no recording"));
    let bytes = state::write(&about, &session.known()).expect("JSON");
    fs::write(dir.join("findings.json"), bytes).expect("a file");
    dir.to_str().expect("a name").to_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_recording_s_findings_are_a_table() {
    let dir = folder();
    let output = run(&["findings", "--recording", &recording(dir.path())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "\
STAGE      SEVERITY  KIND            POD  SINCE  SUMMARY                                                                           KEY
confirmed  warning   leaked_address  -    3m17s  10.88.0.5 of podnet leaked: the IPAM store names a sandbox that no runtime knows  leaked_address/podnet/10.88.0.5/aaaaaaaaaaaa
confirmed  warning   leaked_address  -    3m17s  10.88.0.6 of podnet leaked: the IPAM store names a sandbox that no runtime knows  leaked_address/podnet/10.88.0.6/bbbbbbbbbbbb
"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn what_is_not_asked_for_is_not_listed() {
    let dir = folder();
    let recording = recording(dir.path());
    let lines = |more: &[&str]| {
        let output = run(&[&["findings", "--recording", &recording, "-o", "json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).lines().count()
    };
    assert_eq!(lines(&[]), 2);
    assert_eq!(lines(&["--all", "--kind", "leaked_address", "--kind", "blind_spot"]), 2);
    assert_eq!(lines(&["--kind", "duplicate_sandbox"]), 0);
    assert_eq!(lines(&["--pod", "default/web-0"]), 0);
    let none = run(&["findings", "--recording", &recording, "--kind", "cni_slow"]);
    assert_eq!(text(&none.stdout), "no findings\n");
    let usage = run(&["findings", "--kind", "nonsense"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("nonsense"));
}

#[test]
fn what_an_agent_keeps_is_read_and_whether_it_lives_is_said() {
    let dir = folder();
    let kept = keep(dir.path(), true);
    let output = run(&["findings", "--state-dir", &kept, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let said = text(&output.stderr);
    assert!(said.contains("was ended") && said.lines().count() == 1, "{said}");

    keep(dir.path(), false);
    let lock = File::open(dir.path()).expect("a folder");
    lock.try_lock().expect("free");
    let output = run(&["findings", "--state-dir", &kept]);
    assert_eq!((text(&output.stdout).lines().count(), text(&output.stderr)), (3, ""));

    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let file = File::options().write(true).open(dir.path().join("findings.json")).expect("a file");
    file.set_modified(old).expect("a time");
    let output = run(&["findings", "--state-dir", &kept]);
    assert!(text(&output.stderr).contains("not updated its file for 10m"), "{}", text(&output.stderr));
}

#[test]
fn who_has_no_agent_is_told_what_to_do() {
    let dir = folder();
    let empty = dir.path().to_str().expect("a name");
    for command in [&["findings"][..], &["explain", "x"]] {
        let output = run(&[command, &["--state-dir", empty]].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("sandprobe run") && said.contains("sandprobe leaks"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
    fs::write(dir.path().join("findings.json"), "\x7fELF").expect("a file");
    let output = run(&["findings", "--state-dir", empty]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not a file of sandprobe's findings"));
    assert_eq!(run(&["findings", "--state-dir", "none"]).status.code(), Some(2));
}

#[test]
fn a_key_is_found_by_any_part_that_no_other_has() {
    let dir = folder();
    let recording = recording(dir.path());
    let explain = |key: &str| run(&["explain", key, "--recording", &recording]);
    let whole = explain("10.88.0.5");
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stderr));
    for key in [
        "leaked_address/podnet/10.88.0.5/aaaaaaaaaaaa",
        &format!("leaked_address/podnet/10.88.0.5/{}", id('a')),
    ] {
        assert_eq!(explain(key).stdout, whole.stdout);
    }
    let said = text(&whole.stdout);
    for part in [
        "10.88.0.5 of podnet leaked",
        "sandbox    aaaaaaaaaaaa",
        "/usr/bin/containerd  version not known",
        "https://github.com/containernetworking/plugins/issues/252",
        "flock -w",
        "release '/var/lib/cni/networks/podnet' 10.88.0.5 aaaa",
        "docs/findings/leaked_address.md",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let many = explain("leaked");
    assert_eq!(many.status.code(), Some(2));
    assert!(text(&many.stderr).contains("10.88.0.5") && text(&many.stderr).contains("10.88.0.6"));
    let none = explain("nonsense");
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("findings --all"));
}

#[test]
fn an_explanation_is_one_object_too() {
    let dir = folder();
    let output = run(&["explain", "10.88.0.6", "--recording", &recording(dir.path()), "-o", "json"]);
    let it: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(it["kind"], "leaked_address");
    assert_eq!(it["detail"]["cause"], "stale_record");
    assert_eq!(it["evidence"], serde_json::json!([]));
    assert!(it["repair"].as_array().is_some_and(|lines| !lines.is_empty()));
}

const OWN_PROBLEM: &str = r#"
id = "own-problem"
title = "A problem of our own"
cause = "The node has it."
repair = ["echo {address}"]
links = ["https://example.com/1"]

[[match]]
finding = ["leaked_address"]
lacks = ["plugin"]
"#;

fn write_problem(folder: &Path, id: &str, text: &str) {
    fs::write(folder.join(format!("{id}.toml")), text).expect("a file");
}

#[test]
fn problems_of_the_program_are_listed_and_shown() {
    let empty = tempfile::tempdir().expect("a directory");
    let none = empty.path().to_str().expect("a path");
    let all = run(&["known", "--known", none]);
    let lines = text(&all.stdout).lines().count();
    assert!(all.status.success() && lines > 60, "{lines} lines: {}", text(&all.stderr));
    let json = run(&["known", "-o", "json", "--known", none]);
    let parsed = text(&json.stdout).lines().map(serde_json::from_str::<serde_json::Value>);
    assert_eq!(parsed.filter(|it| it.as_ref().is_ok_and(|it| it["id"].is_string())).count(), lines - 1);
    let one = run(&["known", "bridge-other-address"]);
    assert!(text(&one.stdout).contains("already has an IP address different from"), "{}", text(&one.stdout));
    let none = run(&["known", "no-such-problem"]);
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(
        text(&none.stderr),
        "sandprobe: no known problem has the id no-such-problem; sandprobe known lists all\n"
    );
}

#[test]
fn a_folder_adds_problems_and_what_is_wrong_in_it_is_said() {
    let dir = folder();
    let recording = recording(dir.path());
    let own = tempfile::tempdir().expect("a directory");
    // The file's repair names no member.
    write_problem(own.path(), "own-problem", &OWN_PROBLEM.replace("{address}", "{sandbox}"));
    let given = own.path().to_str().expect("a path");
    let explained = run(&["explain", "10.88.0.5", "--recording", &recording, "--known", given]);
    assert!(
        text(&explained.stdout).contains("A problem of our own (own-problem)"),
        "{}",
        text(&explained.stdout)
    );

    for (id, problem, why) in [
        ("unclear", OWN_PROBLEM.to_owned(), "its id is own-problem, but the file has another name"),
        ("own-problem", OWN_PROBLEM.to_owned(), "{address} in its repair is neither"),
        ("own-problem", "id = ".to_owned(), "line 1: string values must be quoted"),
        ("own-problem", "x".repeat(65 << 10), "more than 65536 bytes"),
    ] {
        let folder = tempfile::tempdir().expect("a directory");
        write_problem(folder.path(), id, &problem);
        let given = folder.path().to_str().expect("a path");
        let listed = run(&["known", "--known", given]);
        let said = text(&listed.stderr);
        assert_eq!((listed.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let path = format!("sandprobe: {given}/{id}.toml is left out of the known problems: ");
        assert!(said.starts_with(&path) && said.contains(why), "{said}");
    }

    // A volume of a ConfigMap has links, in a folder with all rights.
    let volume = tempfile::tempdir().expect("a directory");
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o777)).expect("other rights");
    symlink(own.path().join("own-problem.toml"), volume.path().join("own-problem.toml")).expect("a link");
    let given = volume.path().to_str().expect("a path");
    let listed = run(&["known", "own-problem", "--known", given]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let open = own.path().join("own-problem.toml");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("other rights");
    let listed = run(&["known", "--known", given]);
    assert_eq!(listed.status.code(), Some(1));
    assert!(text(&listed.stderr).contains("others than root and this user own it or may write to it"));
    // What explains nothing does not need the folder.
    assert!(run(&["completions", "bash", "--known", "/nonexistent"]).status.success());
    let absent = run(&["known", "--known", "/nonexistent"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).starts_with("sandprobe: cannot read known problems from /nonexistent: "));
}
