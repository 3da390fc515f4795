//! `sandprobe leaks` on nodes that are made of files: what it finds, and that it says so when it cannot look.
//! Needs no root.

#![cfg(feature = "live")]

mod ipamd;
mod store;

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    fcntl::AT_FDCWD,
    sys::{
        stat::{Mode, UtimensatFlags, utimensat},
        time::TimeSpec,
    },
    unistd::mkfifo,
};
use tempfile::TempDir;

const STORE: &str = "var/lib/cni/networks/podnet";
const SANDBOXES: &str = "var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";

fn run(root: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(["leaks", "--host-root"]).arg(root).args(more).stdin(Stdio::null());
    command.output().expect("the program was built")
}

/// Runs it, which ends with this exit code. Returns what it prints.
fn run_to(code: i32, root: &Path, more: &[&str]) -> String {
    let output = run(root, more);
    let said = text(&output.stdout).to_owned();
    assert_eq!(output.status.code(), Some(code), "{said}{}", text(&output.stderr));
    said
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn write(root: &Path, path: &str, contents: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, contents).expect("a file");
}

fn id(n: usize) -> String {
    format!("{n:064x}")
}

/// A record as host-local writes it, of this age.
fn record(root: &Path, address: &str, n: usize, age: Duration) {
    record_of(root, address, &format!("{}\r\neth0", id(n)), age);
}

fn record_of(root: &Path, address: &str, contents: &str, age: Duration) {
    let path = format!("{STORE}/{address}");
    write(root, &path, contents);
    let file = File::options().write(true).open(root.join(path)).expect("a file");
    file.set_modified(SystemTime::now() - age).expect("a time");
}

const OLD: Duration = Duration::from_secs(3600);

/// A node's disk: the runtime knows the sandboxes with these numbers.
fn disk(known: impl Iterator<Item = usize>) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let conf = r#"{"cniVersion":"1.0.0","name":"podnet","plugins":[{"type":"bridge","ipam":
        {"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]]}}]}"#;
    write(root.path(), "etc/cni/net.d/10-podnet.conflist", conf);
    write(root.path(), &format!("{STORE}/lock"), "");
    write(root.path(), &format!("{STORE}/last_reserved_ip.0"), "10.88.0.9");
    fs::create_dir_all(root.path().join(SANDBOXES)).expect("directories");
    for n in known {
        fs::create_dir(root.path().join(SANDBOXES).join(id(n))).expect("a folder");
    }
    root
}

/// Returns a JSON report, which is about leaks alone: nothing is missed on a disk that only a running node
/// could have.
fn leaked(report: &[u8]) -> Vec<serde_json::Value> {
    let lines: Vec<serde_json::Value> =
        text(report).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|it| it["kind"] == "leaked_address"), "{lines:#?}");
    lines
}

#[test]
fn what_the_runtime_has_forgotten_is_leaked() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    record(root.path(), "10.88.0.3", 2, OLD);
    // This sandbox is being made: its runtime writes it down later.
    record(root.path(), "10.88.0.4", 3, Duration::ZERO);
    let output = run(root.path(), &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(
        said.starts_with(
            "\
NETWORK  RANGE         SIZE   USED  NOT JUDGED  LEAKED  FREE   STORE
podnet   10.88.0.0/16  65533  2     0           1       65530  host-local /var/lib/cni/networks/podnet
"
        ),
        "{said}"
    );
    assert!(said.contains("10.88.0.3") && said.contains("stale_record"), "{said}");
    assert!(!said.contains("10.88.0.2 ") && !said.contains("10.88.0.4"), "{said}");
    assert!(said.contains(&format!("release '/{STORE}' 10.88.0.3 {}", id(2))), "{said}");
    assert!(text(&output.stderr).contains("the records alone"));

    let output = run(root.path(), &["-o", "json"]);
    let found = leaked(&output.stdout);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["stage"], &found[0]["detail"]["address"]),
        (&"confirmed".into(), &"10.88.0.3".into())
    );
}

/// A power loss leaves such files. The script frees them, and nothing else.
#[test]
fn a_record_that_is_empty_or_cut_off_is_leaked_and_is_freed() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    record_of(root.path(), "10.88.0.7", "", OLD);
    record_of(root.path(), "10.88.0.8", &id(2)[..40], OLD);
    // Its plugin is about to write it.
    record_of(root.path(), "10.88.0.9", "", Duration::ZERO);
    let said = run_to(1, root.path(), &[]);
    let row = |row: &&str| row.starts_with("confirmed") && row.contains("ownerless_reservation");
    let rows: Vec<&str> = said.lines().filter(row).collect();
    assert_eq!(rows.len(), 2, "{said}");
    assert!(rows[0].contains("10.88.0.7") && rows[1].contains("10.88.0.8"), "{said}");
    assert!(said.contains("podnet   10.88.0.0/16  65533  2     0           2       65529"), "{said}");

    let script = run_to(1, root.path(), &["--repair-script"]);
    let store = root.path().join(STORE);
    // The script is for the node whose disk this is.
    let script = script.replace(&format!("'/{STORE}'"), &format!("'{}'", store.display()));
    assert!(!script.contains("release ") && !script.contains("10.88.0.9"), "{script}");
    // The runtime knows no sandbox whose id begins as in the file.
    let bin = tempfile::tempdir().expect("a directory");
    let crictl = bin.path().join("crictl");
    fs::write(&crictl, "#!/bin/sh\n").expect("a file");
    fs::set_permissions(&crictl, fs::Permissions::from_mode(0o755)).expect("a program");
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").expect("a path"));
    let run_script = || {
        let mut shell = Command::new("sh");
        shell.env("PATH", &path).env("CONTAINER_RUNTIME_ENDPOINT", "unix:///run/x.sock");
        let ran = shell.args(["-c", &script]).output().expect("a shell");
        (text(&ran.stdout).to_owned(), ran.status.code())
    };
    let all =
        "10.88.0.7 freed\n10.88.0.8 freed\nrepairs: 2 succeeded, 0 failed or were refused, 0 left to you\n";
    assert_eq!(run_script(), (all.to_owned(), Some(0)), "{script}");
    let left = ["10.88.0.2", "10.88.0.7", "10.88.0.8", "10.88.0.9"].map(|name| store.join(name).exists());
    assert_eq!(left, [true, false, false, true]);
    assert_eq!(run(root.path(), &[]).status.code(), Some(0));
    // Somebody has 10.88.0.7 by now. That the last repair succeeds does not hide it.
    record_of(root.path(), "10.88.0.7", &format!("{}\r\neth0", id(1)), OLD);
    record_of(root.path(), "10.88.0.8", "", OLD);
    let (said, code) = run_script();
    let end = "10.88.0.8 freed\nrepairs: 1 succeeded, 1 failed or were refused, 0 left to you\n";
    assert!(said.starts_with("10.88.0.7 kept: ") && said.ends_with(end), "{said}");
    assert_eq!(code, Some(1));
}

/// Other users of CNI write names, and people write words. None of it is a leak, and none of it is used by a
/// pod.
#[test]
fn what_names_no_sandbox_is_shown_as_not_judged_and_is_freed_by_no_script() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    let judged = text(&run(root.path(), &[]).stdout).to_owned();
    assert!(!judged.contains("not judged") && judged.ends_with("\nno leaked addresses\n"), "{judged}");

    record_of(root.path(), "10.88.0.5", "default-web-0\r\neth0", OLD);
    record_of(root.path(), "10.88.0.6", "kept for the printer\n", OLD);
    let output = run(root.path(), &[]);
    let expected = "\
NETWORK  RANGE         SIZE   USED  NOT JUDGED  LEAKED  FREE   STORE
podnet   10.88.0.0/16  65533  1     2           0       65530  host-local /var/lib/cni/networks/podnet

no leaked addresses

NETWORK  ADDRESS    RESERVED BY                                      SINCE        RECORDED IN
podnet   10.88.0.5  default-web-0, not a sandbox's id: not judged  AGE  /var/lib/cni/networks/podnet
podnet   10.88.0.6  a person, in words: not judged                 AGE  /var/lib/cni/networks/podnet
";
    // The age depends on when this machine was booted.
    let words = |text: &str| -> Vec<String> {
        let told = text.replace("before boot", "AGE").replace("1h00m", "AGE");
        told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(words(text(&output.stdout)), words(expected), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let output = run(root.path(), &["-o", "json"]);
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [named, in_words] = lines.as_slice() else { panic!("{lines:#?}") };
    let named = &named["not_judged"];
    assert_eq!((&named["address"], &named["reserved_by"]), (&"10.88.0.5".into(), &"default-web-0".into()));
    assert_eq!((&named["store"], &named["path"]), (&"host_local".into(), &format!("/{STORE}").into()));
    let in_words = &in_words["not_judged"];
    assert_eq!((&in_words["address"], in_words.get("reserved_by")), (&"10.88.0.6".into(), None));

    // A leak beside them is freed alone.
    record(root.path(), "10.88.0.3", 2, OLD);
    let script = run_to(1, root.path(), &["--repair-script"]);
    let calls: Vec<&str> = script.lines().filter(|line| line.starts_with("try ")).collect();
    assert_eq!(calls, [format!("try release '/{STORE}' 10.88.0.3 {}", id(2))]);
}

#[test]
fn a_grace_that_is_not_over_makes_a_candidate() {
    let root = disk([].into_iter());
    // What is older than this boot counts from the boot, which may have been a few minutes ago.
    record(root.path(), "10.88.0.3", 2, Duration::from_secs(60));
    let output = run(root.path(), &["--leak-grace", "150s"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("candidate"), "{}", text(&output.stdout));
    assert!(!text(&output.stdout).contains("release"));
    assert_eq!(run(root.path(), &["--leak-grace", "2h"]).status.code(), Some(0));
    assert_eq!(run(root.path(), &["--leak-grace", "20s"]).status.code(), Some(1));
    assert_eq!(run(root.path(), &["--leak-grace", "10"]).status.code(), Some(2));
}

#[test]
fn nothing_leaked_is_said_only_by_who_could_look() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    let output = run(root.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no leaked addresses"));

    let cannot = |root: &Path, word: &str| {
        let output = run(root, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "no {word:?} in {said}");
        text(&output.stdout).to_owned()
    };
    // What was read is reported anyway.
    let is_partly = |told: &str| told.starts_with("NETWORK ") && told.contains(AS_FAR);
    fs::remove_dir_all(root.path().join("var/lib/containerd")).expect("a folder");
    let told = cannot(root.path(), "/var/lib/containerd");
    assert!(is_partly(&told), "{told}");
    fs::remove_dir_all(root.path().join("var/lib/cni")).expect("a folder");
    let told = cannot(root.path(), "--ipam-store");
    assert!(!told.contains("no leaked addresses"), "{told}");
    assert_eq!(cannot(&root.path().join("nothing"), "--host-root"), "");
    // A store that is not a folder cannot be read.
    let root = disk([1].into_iter());
    write(root.path(), "var/lib/cni/networks/broken", "");
    record(root.path(), "10.88.0.2", 1, OLD);
    let told = cannot(root.path(), "could not look everywhere");
    assert!(is_partly(&told), "{told}");
}

#[test]
fn a_store_that_cannot_be_read_has_no_numbers() {
    let root = disk([1].into_iter());
    fs::remove_dir_all(root.path().join(STORE)).expect("a folder");
    write(root.path(), STORE, "");
    let output = run(root.path(), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let row = said.lines().find(|line| line.ends_with(STORE)).expect("a row");
    let row: Vec<&str> = row.split_whitespace().take(7).collect();
    assert_eq!(row, ["podnet", "10.88.0.0/16", "65533", "?", "?", "?", "?"], "{said}");
}

/// What is printed about leaks if not everything could be read.
const AS_FAR: &str = "\nno leaked addresses, as far as sandprobe can see\n";

/// A directory, a link or a FIFO takes the address as a file does, and may be about to go as well: the grace
/// counts from when it was written.
#[test]
fn what_is_no_file_takes_its_address_and_has_its_grace() {
    let root = disk([].into_iter());
    let at = |address: &str| root.path().join(STORE).join(address);
    fs::create_dir(at("10.88.0.3")).expect("a directory");
    symlink("/etc/passwd", at("10.88.0.4")).expect("a link");
    mkfifo(&at("10.88.0.5"), Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
    File::create(at("10.88.0.6")).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let said = || {
        let output = run(root.path(), &[]);
        (output.status.code(), text(&output.stdout).to_owned())
    };
    let (code, young) = said();
    assert!(code == Some(0) && young.contains("no leaked addresses"), "{code:?}: {young}");
    for address in ["10.88.0.3", "10.88.0.4", "10.88.0.5", "10.88.0.6"] {
        let old = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time") - OLD;
        let old = TimeSpec::from(old);
        utimensat(AT_FDCWD, &at(address), &old, &old, UtimensatFlags::NoFollowSymlink).expect("a time");
        let (code, old) = said();
        assert_eq!(code, Some(1), "{address}: {old}");
        let row = |line: &&str| line.contains(address) && line.contains("ownerless_reservation");
        assert!(old.lines().find(row).is_some_and(|row| row.starts_with("confirmed")), "{address}: {old}");
    }
}

/// It may say where a store is; it is not a store.
#[test]
fn a_configuration_that_cannot_be_read_is_not_called_a_store() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    mkfifo(&root.path().join("etc/cni/net.d/00-a.conflist"), Mode::S_IRUSR).expect("a FIFO");
    let output = run(root.path(), &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(text(&output.stdout).contains(AS_FAR), "{}", text(&output.stdout));
    let why = "could not look everywhere: a network's configuration cannot be read: /etc/cni/net.d/00-a.conflist: not a regular \
               file or directory; make it a file, or remove it\n";
    assert!(said.contains(why), "{said}");
}

/// One line: what, where, what to do. A file that exists and cannot be read is not absent.
#[test]
fn a_declared_store_that_cannot_be_read_is_told_in_one_line() {
    let root = disk([1].into_iter());
    record(root.path(), "10.88.0.2", 1, OLD);
    write(root.path(), "etc/passwd", "root");
    let said = |store: &str| {
        let output = run(root.path(), &["--ipam-store", store]);
        let lines: Vec<String> = text(&output.stderr)
            .lines()
            .filter(|line| !line.contains("the records alone decide"))
            .map(str::to_owned)
            .collect();
        (output.status.code(), lines)
    };
    let no_directory = "sandprobe: could not look everywhere: an IPAM store cannot be read: /etc/passwd: not a regular file \
                        or directory; --ipam-store takes the directory in which the plugin keeps a file for each address";
    assert_eq!(said("/etc/passwd"), (Some(2), vec![no_directory.to_owned()]));
    let absent = "sandprobe: IPAM store /nothing is not there: it counts as empty until it is";
    assert_eq!(said("/nothing"), (Some(0), vec![absent.to_owned()]));
    // It is also printed if something was found elsewhere.
    record(root.path(), "10.88.0.3", 2, OLD);
    assert_eq!(said("/etc/passwd"), (Some(1), vec![no_directory.to_owned()]));
}

#[test]
fn a_declared_store_is_looked_at_too() {
    let root = disk([].into_iter());
    write(root.path(), "var/lib/own/10.9.0.7", &id(5));
    let file = File::options().write(true).open(root.path().join("var/lib/own/10.9.0.7")).expect("a file");
    file.set_modified(SystemTime::now() - OLD).expect("a time");
    let said = run_to(1, root.path(), &["--ipam-store", "/var/lib/own:blue"]);
    assert!(
        said.contains("10.9.0.7") && said.contains("the plugin's own") && !said.contains("rm "),
        "{said}"
    );
}

/// Frozen nodes have processes, and networks of both families. The age of their files depends on the
/// checkout.
#[test]
fn a_frozen_node_is_looked_at_as_it_was() {
    for (host, leaked) in
        [("containerd-systemd", Some("10.88.0.2 ")), ("crio", None), ("docker", None), ("k3s", None)]
    {
        let output = run(&frozen(host), &["--leak-grace", "0s"]);
        let said = text(&output.stdout);
        let code = i32::from(leaked.is_some());
        assert_eq!(output.status.code(), Some(code), "{host}: {said}{}", text(&output.stderr));
        assert!(said.contains(leaked.unwrap_or("no leaked addresses")), "{host}: {said}");
        assert_eq!(said.contains("confirmed"), leaked.is_some(), "{host}: {said}");
    }
}

/// Its records say which addresses are still wanted.
#[test]
fn a_runtime_that_runs_without_its_records_hides_no_leak() {
    let sandboxes = "io.containerd.grpc.v1.cri/sandboxes";
    for (host, folder, records) in [
        ("containerd-systemd", "var/lib/containerd", sandboxes),
        ("crio", "var/lib/containers/storage", ""),
        ("docker", "var/lib/docker", "containers"),
        ("isulad", "var/lib/isulad", "engines"),
        ("k3s", "var/lib/rancher/k3s/agent/containerd", sandboxes),
    ] {
        let root = copied(host);
        fs::remove_dir_all(root.path().join(folder)).expect("a folder");
        let place = Path::new("/").join(folder).join(records);
        let place = place.to_str().expect("text").trim_end_matches('/');
        let why = format!(
            "sandprobe: could not look everywhere: a runtime's records of sandboxes cannot be read: {place}: not there, and \
             its runtime runs; mount the disk that has it\n"
        );
        for (form, told) in [(&[][..], AS_FAR), (&["-o", "json"], "blind_spot"), (&["--repair-script"], "")] {
            let output = run(root.path(), form);
            let (said, printed) = (text(&output.stderr), text(&output.stdout));
            assert_eq!((output.status.code(), said), (Some(2), &*why), "{host} {form:?}");
            assert!(printed.contains(told) && printed.is_empty() == told.is_empty(), "{host}: {printed}");
        }
    }
}

/// The container of the record may be a sandbox.
#[test]
fn a_container_of_which_docker_has_no_readable_record_is_named() {
    let root = copied("docker");
    let container = "23dce42f7b1cb6bbd5779d3b97b4f0972041d371a8dc7a8e16501b68406a7448";
    let record = format!("var/lib/docker/containers/{container}/config.v2.json");
    write(root.path(), &record, "{");
    let output = run(root.path(), &[]);
    let why =
        format!("a runtime's records of sandboxes cannot be read: /{record}: not in a form that is known\n");
    assert!(text(&output.stderr).ends_with(&why), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(AS_FAR) && output.status.code() == Some(2));
}

fn frozen(host: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/hosts").join(host)
}

fn copied(host: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let copied = Command::new("cp").arg("-a").arg(frozen(host).join(".")).arg(root.path()).status();
    assert!(copied.expect("cp").success(), "{host}");
    root
}

/// Every second of ten thousand is leaked, and each of these is found.
#[test]
fn ten_thousand_records_are_looked_through() {
    let root = disk((0..10_000).step_by(2));
    for n in 0..10_000 {
        record(root.path(), &format!("10.88.{}.{}", n / 250, n % 250 + 1), n, OLD);
    }
    let start = Instant::now();
    let output = run(root.path(), &["-o", "json"]);
    // It takes a second when optimized.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let mut found: Vec<_> = leaked(&output.stdout)
        .iter()
        .map(|it| (it["sandboxes"][0].as_str().expect("an id").to_owned(), it["detail"]["address"].clone()))
        .collect();
    found.sort_by_key(|(id, _)| id.clone());
    let expected = |n: usize| (id(n), format!("10.88.{}.{}", n / 250, n % 250 + 1).into());
    assert_eq!(found, (1..10_000).step_by(2).map(expected).collect::<Vec<_>>());

    let script = run(root.path(), &["--repair-script"]);
    let script = text(&script.stdout);
    assert_eq!(script.lines().filter(|line| line.starts_with("try release '/var/lib")).count(), 5_000);
    assert!(script.starts_with("#!/bin/sh\n"));
    let file = root.path().join("free.sh");
    fs::write(&file, script).expect("a file");
    assert!(Command::new("sh").arg("-n").arg(file).status().expect("a shell").success());
}

fn touch(root: &Path, path: &str, contents: &str, age: Duration) {
    write(root, path, contents);
    let file = File::options().write(true).open(root.join(path)).expect("a file");
    file.set_modified(SystemTime::now() - age).expect("a time");
}
