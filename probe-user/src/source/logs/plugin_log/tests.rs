//! Tests with real log lines, and with journals that journald 252 wrote from such lines: `cat` sent them, and
//! its name and executable were replaced by containerd's.

use std::{
    fs,
    os::unix::fs::{FileExt as _, symlink},
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use super::{Match, Message, Sender, TEXT, Unreadable, Wanted, Window, boots, each, extract, find};
use crate::{
    model::fact::CniCommand,
    source::host::{HostRoot, ReadError},
};

const CONTAINERD_1_6: &str = r#"time="2026-11-21T08:15:03.992378979Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:web-0,Uid:00000000-0142-4000-8000-000000000001,Namespace:default,Attempt:0,} failed, error" error="failed to setup network for sandbox \"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\": plugin type=\"bridge\" failed (add): failed to find plugin \"host-nowhere\" in path [/usr/lib/cni]""#;
const CONTAINERD_1_7: &str = r#"time="2026-11-21T08:16:05.578149814Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:web-1,Uid:00000000-0142-4000-8000-000000000002,Namespace:default,Attempt:0,} failed, error" error="failed to setup network for sandbox \"7d2508103574fcdee6bfc02f9e63017703f2008862901b475364b31686fc3d37\": plugin type=\"no-such-plugin\" failed (add): failed to find plugin \"no-such-plugin\" in path [/usr/lib/cni]""#;
const CONTAINERD_2_1: &str = r#"time="2026-11-21T08:19:24.405636689Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:web-2,Uid:00000000-0142-4000-8000-000000000003,Namespace:default,Attempt:0,} failed, error" error="rpc error: code = Unknown desc = failed to setup network for sandbox \"1f583adf6ada10538077a17a9b6657410449b003c2d7320a1f2e51c4632bf926\": plugin type=\"bridge\" failed (add): failed to set bridge addr: could not set bridge's mac: invalid argument""#;
/// This line as a containerd with `format = "json"` writes it.
const JSON: &str = r#"{"error":"failed to setup network for sandbox \"aa11\": plugin type=\"bridge\" failed (add): no \u003caddress\u003e","level":"error","msg":"RunPodSandbox for \u0026PodSandboxMetadata{Name:web-0,Uid:u,Namespace:default,Attempt:0,} failed, error","time":"2026-11-21T08:15:03.992378979Z"}"#;
const KUBELET: &str = r#"E0913 09:29:07.123456    1234 remote_runtime.go:193] "RunPodSandbox from runtime service failed" err="rpc error: code = Unknown desc = failed to setup network for sandbox \"aa11\": plugin type=\"calico\" failed (add): stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/""#;
const KUBELET_SYNC: &str = r#"E0913 09:29:07.123456    1234 pod_workers.go:1294] "Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for \"web-0_default(11111111-2222-3333-4444-555555555555)\" with CreatePodSandboxError: \"Failed to create sandbox for pod \\\"web-0_default(11111111-2222-3333-4444-555555555555)\\\": rpc error: code = Unknown desc = failed to setup network for sandbox \\\"aa11\\\": plugin type=\\\"bridge\\\" failed (add): failed to find plugin \\\"host-nowhere\\\" in path [/opt/cni/bin]\"" pod="default/web-0" podUID=11111111-2222-3333-4444-555555555555"#;
const CRIO: &str = r#"time="2026-11-21 09:15:03.988990154+01:00" level=error msg="Error adding pod default_web-0 to CNI network \"crio\": plugin type=\"bridge\" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.85.0.1-10.85.255.254""#;
const CRIO_KUBELET: &str = r#"E0913 09:29:07.123456    1234 remote_runtime.go:193] "RunPodSandbox from runtime service failed" err="rpc error: code = Unknown desc = failed to create pod network sandbox k8s_web-0_default_11111111-2222-3333-4444-555555555555_0(aa11): error adding pod default_web-0 to CNI network \"crio\": plugin type=\"bridge\" failed (add): no address""#;
/// A line of an older libcni, which does not name the plugin.
const CRIO_OLD: &str = r#"level=error msg="Error adding network: failed to create pod network sandbox k8s_web-0_default_u_0(aa11): error adding pod default_web-0 to CNI network \"k8s-pod-network\": pods \"web-0\" not found""#;
/// A line of the kubelet, which splits messages that contain line breaks.
const MULTUS: &str = r#"  rpc error: code = Unknown desc = failed to setup network for sandbox "aa11": plugin type="multus" name="multus-cni-network" failed (add): [default/web-0/u:kindnet]: error adding container to network "kindnet": plugin type="ptp" failed (add): no route"#;

const DEL_CONTAINERD: &str = r#"time="2026-11-21T08:15:03.992378979Z" level=error msg="StopPodSandbox for \"aa11\" failed" error="failed to destroy network for sandbox \"aa11\": plugin type=\"bridge\" failed (delete): failed to lock"#;
const DEL_KUBELET: &str = r#"E0913 09:29:07.123456    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"KillPodSandbox\" for \"11111111-2222-3333-4444-555555555555\" with KillPodSandboxError: \"rpc error: code = Unknown desc = failed to destroy network for sandbox \\\"aa11\\\": plugin type=\\\"calico\\\" failed (delete): error getting ClusterInformation: connection is unauthorized: Unauthorized\"" pod="default/web-0" podUID=11111111-2222-3333-4444-555555555555"#;
const DEL_CRIO_OLD: &str = r#"level=error msg="Error deleting network: failed to destroy network for pod sandbox k8s_web-0_default_u_0(aa11): error removing pod default_web-0 from CNI network \"k8s-pod-network\": no daemon""#;

fn wanted(sandbox: &str) -> Wanted<'_> {
    Wanted {
        sandbox,
        pod: Some(("default", "web-0")),
        command: CniCommand::Add,
        window: Window { from: 0, until: u64::MAX },
    }
}

fn said(line: &str, sandbox: &str) -> Option<(Match, String)> {
    extract::message(line, wanted(sandbox))
}

/// A message about a failed DEL does not answer for an ADD, and the reverse.
#[test]
fn a_failed_del_has_words_of_its_own() {
    let said_of_del =
        |line: &str| extract::message(line, Wanted { command: CniCommand::Del, ..wanted("aa11") });
    for (line, text) in [
        (DEL_CONTAINERD, "plugin type=\"bridge\" failed (delete): failed to lock"),
        (
            DEL_KUBELET,
            "plugin type=\"calico\" failed (delete): error getting ClusterInformation: connection is unauthorized: \
             Unauthorized",
        ),
        (DEL_CRIO_OLD, "no daemon"),
    ] {
        assert_eq!(said_of_del(line), Some((Match::Sandbox, text.to_owned())), "{line}");
        assert_eq!(said(line, "aa11"), None, "{line}");
    }
    for line in [JSON, KUBELET, KUBELET_SYNC, CRIO_KUBELET, CRIO_OLD, MULTUS] {
        assert_eq!(said_of_del(line), None, "{line}");
    }
}

#[test]
fn the_plugins_words_are_found_in_every_log() {
    let nowhere = "failed to find plugin \"host-nowhere\" in path";
    for (line, sandbox, quality, text) in [
        (CONTAINERD_1_6, "9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c", Match::Sandbox,
            format!("plugin type=\"bridge\" failed (add): {nowhere} [/usr/lib/cni]")),
        (CONTAINERD_1_7, "7d2508103574fcdee6bfc02f9e63017703f2008862901b475364b31686fc3d37", Match::Sandbox,
            "plugin type=\"no-such-plugin\" failed (add): failed to find plugin \"no-such-plugin\" in path [/usr/lib/cni]".to_owned()),
        (CONTAINERD_2_1, "1f583adf6ada10538077a17a9b6657410449b003c2d7320a1f2e51c4632bf926", Match::Sandbox,
            "plugin type=\"bridge\" failed (add): failed to set bridge addr: could not set bridge's mac: invalid argument".to_owned()),
        (JSON, "aa11", Match::Sandbox, "plugin type=\"bridge\" failed (add): no <address>".to_owned()),
        (KUBELET, "aa11", Match::Sandbox,
            "plugin type=\"calico\" failed (add): stat /var/lib/calico/nodename: no such file or directory: check that \
             the calico/node container is running and has mounted /var/lib/calico/".to_owned()),
        (KUBELET_SYNC, "aa11", Match::Sandbox,
            format!("plugin type=\"bridge\" failed (add): {nowhere} [/opt/cni/bin]")),
        (KUBELET_SYNC, "bb22", Match::Pod,
            format!("plugin type=\"bridge\" failed (add): {nowhere} [/opt/cni/bin]")),
        (CRIO, "aa11", Match::Pod,
            "plugin type=\"bridge\" failed (add): failed to allocate for range 0: no IP addresses available in range \
             set: 10.85.0.1-10.85.255.254".to_owned()),
        (CRIO_KUBELET, "aa11", Match::Sandbox, "plugin type=\"bridge\" failed (add): no address".to_owned()),
        (CRIO_OLD, "aa11", Match::Sandbox, "pods \"web-0\" not found".to_owned()),
        (MULTUS, "aa11", Match::Sandbox, "plugin type=\"ptp\" failed (add): no route".to_owned()),
    ] {
        assert_eq!(said(line, sandbox), Some((quality, text)), "{line}");
    }
}

#[test]
fn what_is_of_another_is_not_taken() {
    // Other pods whose names begin or end alike.
    for other in ["web-00", "my-web-0", "web-0-1"] {
        assert_eq!(said(&CRIO.replace("_web-0 ", &format!("_{other} ")), "aa11"), None, "{other}");
        assert_eq!(said(&KUBELET_SYNC.replace("web-0", other), "bb22"), None, "{other}");
    }
    assert_eq!(said(&CRIO.replace("default_", "my-default_"), "aa11"), None);
    // A failed DEL, and a line that only mentions the sandbox.
    assert_eq!(said(&KUBELET.replace("(add)", "(delete)").replace("setup", "tear down"), "aa11"), None);
    assert_eq!(said("RunPodSandbox aa11 returns", "aa11"), None);
    assert_eq!(said(KUBELET, ""), None, "no id is no id of any line");
}

#[test]
fn what_is_told_is_one_short_line() {
    let line = |text: &str| {
        format!("failed to setup network for sandbox \"aa11\": plugin type=\"x\" failed (add): {text}")
    };
    let text = |said: Option<(Match, String)>| said.expect("a message").1;
    assert_eq!(
        text(said(&line("a\u{1b}[2Jb\u{202e}c\td"), "aa11")),
        "plugin type=\"x\" failed (add): a\\u{1b}[2Jb\\u{202e}c\\td"
    );
    let long = text(said(&line(&"é".repeat(1000)), "aa11"));
    assert!(long.len() <= TEXT && long.len() > TEXT - 2, "{}", long.len());
    // The log quoted it once, so the plugin's line break does not split the line.
    let quoted = CONTAINERD_1_6.replace("in path", r"\n\nin path");
    assert!(text(said(&quoted, "9ffacbee")).contains("\\n\\nin path"));
    // Go writes control characters and bytes that are not UTF-8 in a form of its own.
    let quoted = CONTAINERD_1_6.replace("in path", r"\x1b[31m\xff\x");
    assert!(text(said(&quoted, "9ffacbee")).contains(r"\u{1b}[31m\xff\x"));
}

fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journal")).join(name)
}

fn node() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(root.path().join("var/log/journal/5d1cb95b000040008000000000000001"))
        .expect("a directory");
    root
}

fn journal(root: &tempfile::TempDir) -> PathBuf {
    root.path().join("var/log/journal/5d1cb95b000040008000000000000001/system.journal")
}

fn look(root: &tempfile::TempDir, wanted: Wanted<'_>) -> Result<Message, Unreadable> {
    one(&HostRoot::open(root.path()).expect("the root"), wanted)
}

fn one(host: &HostRoot, wanted: Wanted<'_>) -> Result<Message, Unreadable> {
    find(host, &[wanted]).pop().expect("an answer")
}

#[test]
fn real_journals_are_read() {
    for name in ["compact.journal", "regular.journal"] {
        let root = node();
        fs::copy(data(name), journal(&root)).expect("a copy");
        let source = PathBuf::from("/var/log/journal/5d1cb95b000040008000000000000001/system.journal");
        // Longer than 512 bytes, so journald compressed it. A later message of a process that is not root's
        // is ignored.
        let text = "plugin type=\"bridge\" failed (add): failed to find plugin \"host-nowhere\" in path [/usr/lib/cni]";
        let id = "9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c";
        let found = look(&root, wanted(id));
        assert_eq!(found, Ok(Message { text: text.to_owned(), source }), "{name}");
        for id in [
            "f35e649c64a3888cf8fa446c369c96419fc10e44a7369c7744468d0b7ced2e5b",
            "1f583adf6ada10538077a17a9b6657410449b003c2d7320a1f2e51c4632bf926",
        ] {
            look(&root, wanted(id)).expect("a message");
        }
        // A message of another sandbox or of another hour does not match.
        let not = look(&root, wanted("bb22")).expect_err("no message");
        assert_eq!(
            not.to_string(),
            "it is not in /var/log/journal/5d1cb95b000040008000000000000001",
            "{name}"
        );
        let before = Window { from: 0, until: 1_795_240_000_000_000 };
        look(&root, Wanted { window: before, ..wanted(id) }).expect_err("no message");
    }
}

#[test]
fn all_that_a_journal_says_can_be_had_of_a_time() {
    let root = node();
    fs::copy(data("compact.journal"), journal(&root)).expect("a copy");
    let host = HostRoot::open(root.path()).expect("the root");
    let said = |from, until| {
        let mut said = Vec::new();
        let window = Window { from, until };
        let not = each(&host, window, Sender::Daemon, &mut |at, text| said.push((at, text.to_owned())));
        assert!(not.skipped.is_none());
        said
    };
    let all = said(0, u64::MAX);
    assert!(all.len() >= 3 && all.iter().any(|(_, text)| text.contains("RunPodSandbox")));
    let newest = all.iter().map(|(at, _)| *at).max().expect("a message");
    assert!(said(newest, newest).iter().all(|(at, _)| *at == newest));
    assert!(said(newest + 1, u64::MAX).is_empty());
}

#[test]
fn log_files_serve_where_there_is_no_journal() {
    let root = node();
    let at = |name: &str| root.path().join("var/log").join(name);
    assert_eq!(
        look(&root, wanted("aa11")).expect_err("none").to_string(),
        "there is no journal and no log file to read it from"
    );
    let syslog =
        format!("Nov 21 08:15:03 node kernel: x\nNov 21 08:15:03 node containerd[7]: {CONTAINERD_1_6}\n");
    fs::write(at("syslog"), format!("{syslog}Nov 21 09:15:03 node crio[8]: {CRIO}\n")).expect("a file");
    let found = look(&root, wanted("9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c"));
    assert_eq!(found.map(|found| found.source), Ok("/var/log/syslog".into()));
    // A line with only the pod's name matches within the window.
    let at_crio = 1_795_248_903_988_990;
    let in_window = |from, until| look(&root, Wanted { window: Window { from, until }, ..wanted("aa11") });
    assert!(in_window(at_crio, at_crio).expect("a message").text.contains("10.85.255.254"));
    let not = in_window(at_crio + 1, u64::MAX).expect_err("another's");
    assert_eq!(not.to_string(), "it is not in /var/log/syslog");
    // A file that cannot be read is reported, and does not hide the others.
    symlink("syslog", at("messages")).expect("a link");
    fs::create_dir(at("kubelet.log")).expect("a directory");
    let not = in_window(0, 0).expect_err("another time's").to_string();
    let skipped = "/var/log/kubelet.log could not be read: ";
    assert!(not.starts_with(&format!("it is not in /var/log/syslog, /var/log/messages; {skipped}")), "{not}");
    // If there is a journal that cannot be read, any user's lines still do not count.
    fs::write(journal(&root), "no journal, but long enough to have a header: ".repeat(9)).expect("a file");
    let not = in_window(at_crio, at_crio).expect_err("syslog's").to_string();
    assert_eq!(
        not,
        "there is no journal and no log file to read it from; \
         /var/log/journal/5d1cb95b000040008000000000000001/system.journal could not be read: not in a form that is \
         known, and 1 more"
    );
}

/// `sudo` writes a user's text in root's name, and `logger` writes any text.
#[test]
fn what_a_user_writes_is_no_plugins_word() {
    let sandbox = "9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c";
    let root = node();
    let mut file = fs::read(data("compact.journal")).expect("a journal");
    let (old, new) = (b"_EXE=/usr/bin/containerd", b"_EXE=/usr/bin/sudoreplay");
    let at = file.windows(old.len()).position(|it| it == old).expect("the field");
    file[at..at + new.len()].copy_from_slice(new);
    fs::write(journal(&root), &file).expect("a journal");
    // The process still has the name of containerd.
    assert!(file.windows(16).any(|it| it == b"_COMM=containerd"));
    let syslog = format!("2026-11-21T08:15:03Z node containerd[7]: {CONTAINERD_1_6}\n");
    for log in ["syslog", "messages"] {
        fs::write(root.path().join("var/log").join(log), &syslog).expect("a file");
    }
    let not = look(&root, wanted(sandbox)).expect_err("nobody said so who is believed");
    assert_eq!(not.to_string(), "it is not in /var/log/journal/5d1cb95b000040008000000000000001");
    // Without a journal the writer is unknown, and the file is named.
    fs::remove_file(journal(&root)).expect("removed");
    assert_eq!(look(&root, wanted(sandbox)).map(|it| it.source), Ok("/var/log/syslog".into()));
}

#[test]
fn a_journal_that_claims_much_is_not_read_for_it() {
    let root = node();
    fs::copy(data("regular.journal"), journal(&root)).expect("a copy");
    let file = fs::OpenOptions::new().read(true).write(true).open(journal(&root)).expect("the journal");
    let mut arrays = [0; 8];
    file.read_exact_at(&mut arrays, 176).expect("a header");
    let arrays = u64::from_le_bytes(arrays);
    // The first array links to itself, and there are more entries than fit in it.
    file.write_all_at(&arrays.to_le_bytes(), arrays + 16).expect("written");
    file.write_all_at(&u64::MAX.to_le_bytes(), 152).expect("written");
    assert!(look(&root, wanted("bb22")).is_err());
    // The array has 8 EB, in a sparse file of that length.
    file.write_all_at(&(1_u64 << 63).to_le_bytes(), arrays + 8).expect("written");
    file.set_len(1 << 40).expect("a length");
    let not = look(&root, wanted("bb22")).expect_err("nothing");
    assert!(matches!(not.skipped.first.as_deref(), Some((_, ReadError::TooLarge(_)))), "{not}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn mutated_journals_do_no_harm(
        compact: bool,
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        header in prop::collection::vec((0_usize..272, any::<u8>()), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let name = if compact { "compact.journal" } else { "regular.journal" };
        let mut file = fs::read(data(name)).expect("a journal");
        for (at, byte) in bytes {
            // The offset is after the hash tables, which are not read.
            let at = 38_000 + at.index(file.len() - 38_000);
            file[at] = byte;
        }
        for (at, byte) in header {
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let root = node();
        fs::write(journal(&root), file).expect("a file");
        if let Ok(Message { text, .. }) = look(&root, wanted("9ffacbee")) {
            prop_assert!(text.len() <= TEXT && !text.contains(char::is_control));
        }
        fs::create_dir(root.path().join("etc")).expect("a folder");
        fs::write(root.path().join("etc/machine-id"), "5d1cb95b000040008000000000000001").expect("a file");
        let host = HostRoot::open(root.path()).expect("the root");
        let ever = Window { from: 0, until: u64::MAX };
        prop_assert!(boots(&host, ever).len() < 100);
    }

    #[test]
    fn no_line_is_too_strange(any: String, before in "\\PC{0,20}", quotes in "[\\\\]{0,9}", after in "[\\\\\"nu: é]{0,40}") {
        said(&any, "aa11");
        let line = format!("{before}aa11 plugin type={quotes}\"x{quotes}\" failed (add): {after}");
        let found = said(&line, "aa11").map(|(_, text)| text);
        prop_assert!(found.is_none_or(|text| text.len() <= TEXT && !text.contains(char::is_control)));
    }
}

/// The daemon was started by a unit with `StandardOutput=append:`, or by hand.
#[test]
fn the_file_to_which_a_daemon_writes_its_output_is_read() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |path: &str| root.path().join(path);
    let process = |pid: u32, comm: &str, user: u32, cgroup: &str, output: &str| {
        let folder = at(&format!("proc/{pid}"));
        fs::create_dir_all(folder.join("fd")).expect("a directory");
        fs::write(folder.join("comm"), format!("{comm}\n")).expect("a file");
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).expect("a file");
        fs::write(folder.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")).expect("a file");
        symlink(output, folder.join("fd/2")).expect("a link");
    };
    fs::create_dir_all(at("srv")).expect("a directory");
    fs::write(at("srv/runtime.out"), format!("{CONTAINERD_1_6}\n")).expect("a file");
    let sandbox = "9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c";
    let host = HostRoot::open(root.path()).expect("the root");
    let found = |host: &HostRoot| one(host, wanted(sandbox)).map(|it| it.source);
    let container = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/".to_owned() + sandbox;
    process(7, "bash", 0, "/", "/srv/runtime.out");
    process(8, "containerd", 0, &container, "/srv/runtime.out");
    process(9, "containerd", 0, "/system.slice/containerd.service", "socket:[7]");
    process(11, "containerd", 1000, "/user.slice/user-1000.slice", "/srv/runtime.out");
    assert!(found(&host).is_err(), "of no daemon of the node");
    process(10, "containerd", 0, "/system.slice/containerd.service", "/srv/runtime.out");
    assert_eq!(found(&host).expect("the words"), Path::new("/srv/runtime.out"));
}
