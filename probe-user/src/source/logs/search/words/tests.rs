//! Tests of what counts as an error about a pod, and of its text.

use std::path::Path;

use proptest::prelude::*;

use super::{AskedPod, Fact, Logged, NameSource, Said, Speaker, Unreadable, Words, read};
use crate::model::{
    fact::{DaemonWordsFound, WordsFound},
    id::{ContainerId, PodUid},
    time::Timestamp,
};

const UID: &str = "00000000-0142-4000-8000-000000000001";
const OTHER: &str = "00000000-0142-4000-8000-000000000002";

fn pod(name: Option<&str>) -> AskedPod {
    AskedPod {
        uid: PodUid::parse(UID).expect("a UID"),
        namespace: name.map(|_| "default".to_owned()),
        name: name.map(str::to_owned),
        sandboxes: vec![ContainerId::parse(&"ab".repeat(32)).expect("an id")],
        container: None,
    }
}

/// Returns the kubelet's line about a pod that it could not bring further.
fn sync(err: &str) -> String {
    format!(
        r#"E1125 09:29:07.1 1234 pod_workers.go:1301] "Error syncing pod, skipping" err="{err}" pod="default/web-0" podUID="{UID}""#
    )
}

fn of_kubelet(text: &str) -> Option<Logged> {
    Some(Logged { by: Speaker::Kubelet, text: text.to_owned(), is_fatal: false })
}

fn of_runtime(text: &str) -> Option<Logged> {
    Some(Logged { by: Speaker::Runtime, text: text.to_owned(), is_fatal: false })
}

#[test]
fn the_kubelet_says_what_it_waits_for() {
    for (line, expected) in [
        (
            sync(
                r#"failed to \"StartContainer\" for \"main\" with ErrImagePull: \"rpc error: code = NotFound desc = failed to pull and unpack image \\\"docker.io/library/nginx:no\\\": not found\""#,
            ),
            r#"failed to pull and unpack image "docker.io/library/nginx:no": not found"#,
        ),
        (
            sync(
                r#"failed to \"StartContainer\" for \"main\" with CreateContainerConfigError: \"secret \\\"db\\\" not found\""#,
            ),
            r#"secret "db" not found"#,
        ),
        (
            sync("services have not yet been read at least once, cannot construct envvars"),
            "services have not yet been read at least once, cannot construct envvars",
        ),
        (
            format!(
                r#"E1127 10:11:12.131415 1234 nestedpendingoperations.go:348] Operation for "{{volumeName:kubernetes.io/secret/{UID}-tls podName:{UID} nodeName:}}" failed. No retries permitted until 2026-11-27 10:13:14.131 +0000 UTC m=+2 (durationBeforeRetry 2m2s). Error: MountVolume.SetUp failed for volume "tls" (UniqueName: "kubernetes.io/secret/{UID}-tls") pod "web-0" (UID: "{UID}") : secret "tls" not found"#
            ),
            r#"MountVolume.SetUp failed for volume "tls" : secret "tls" not found"#,
        ),
        (
            format!(
                r#"{{"ts":1795668067906.4,"caller":"kubelet/pod_workers.go:1301","msg":"Error syncing pod, skipping","pod":{{"name":"web-0","namespace":"default"}},"podUID":"{UID}","err":"network is not ready: cni plugin not initialized"}}"#
            ),
            "network is not ready: cni plugin not initialized",
        ),
        (
            format!(
                r#"{{"ts":1795668067906.4,"caller":"a.go:348","msg":"Operation for \"x\" failed. No retries permitted until y. Error: MountVolume.SetUp failed for volume \"tls\" (UniqueName: \"u\") pod \"web-0\" (UID: \"{UID}\") : secret \"tls\" not found"}}"#
            ),
            r#"MountVolume.SetUp failed for volume "tls" : secret "tls" not found"#,
        ),
    ] {
        assert_eq!(read(&line), of_kubelet(expected), "{line}");
    }
}

#[test]
fn several_containers_keep_their_names() {
    let two = r#"[failed to \"StartContainer\" for \"a\" with ErrImagePull: \"no\", failed to \"StartContainer\" for \"b\" with ErrImagePull: \"no\"]"#;
    let said = r#"[failed to "StartContainer" for "a" with ErrImagePull: "no", failed to "StartContainer" for "b" with ErrImagePull: "no"]"#;
    assert_eq!(read(&sync(two)), of_kubelet(said));
}

#[test]
fn a_runtime_says_why_it_failed() {
    let text = r#"failed to reserve sandbox name "web-0_default_u_0": name "web-0_default_u_0" is reserved for "ab""#;
    for line in [
        r#"time="2026-11-21T08:15:03.9Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:web-0,Uid:u,Namespace:default,Attempt:0,} failed, error" error="failed to reserve sandbox name \"web-0_default_u_0\": name \"web-0_default_u_0\" is reserved for \"ab\"""#,
        r#"{"error":"failed to reserve sandbox name \"web-0_default_u_0\": name \"web-0_default_u_0\" is reserved for \"ab\"","level":"error","msg":"RunPodSandbox failed","time":"2026-11-21T08:15:03.9Z"}"#,
    ] {
        assert_eq!(read(line), of_runtime(text), "{line}");
    }
    let crio =
        r#"time="2026-11-21 09:15:03.9+01:00" level=error msg="Error stopping network: no route" id=7e-1"#;
    assert_eq!(read(crio), of_runtime("Error stopping network: no route"));
    // k0s passes on what its programs log.
    let k0s = r#"time="2025-01-25 19:34:57" level=info msg="time=\"2025-01-25T19:34:57.4Z\" level=error msg=\"PullImage \\\"x\\\" failed\" error=\"failed to resolve \\\"x\\\"\"" component=containerd"#;
    assert_eq!(read(k0s), of_runtime(r#"failed to resolve "x""#));
    let k0s = r#"time="2025-01-25 19:34:57" level=info msg="E0125 19:34:57.4 1 pod_workers.go:1301] \"Error syncing pod\" err=\"no\"" component=kubelet"#;
    assert_eq!(read(k0s), of_kubelet("no"));
}

#[test]
fn what_is_no_error_says_nothing() {
    for line in [
        r#"I1121 08:15:10.1 1234 event.go:389] "Event occurred" err="no" pod="default/web-0""#,
        r#"W1121 08:15:10.1 1234 pod.go:1] "Unable to retrieve pull secret" err="no" pod="default/web-0""#,
        r#"time="2026-11-21T08:15:10.5Z" level=info msg="StopPodSandbox" error="x""#,
        r#"{"level":"info","msg":"StopPodSandbox","error":"x"}"#,
        r#"{"ts":1,"msg":"Event occurred","v":0}"#,
        r#"{"ts":1,"msg":"Event occurred","v":0,"err":"no"}"#,
        "{",
        "E1",
        "Error: what a container prints",
        "",
    ] {
        assert_eq!(read(line), None, "{line}");
    }
}

/// The output of a probe, and the environment of a container, are the pod's own.
#[test]
fn what_a_container_can_write_is_not_quoted() {
    let forged = sync("a lie");
    assert_eq!(read(&format!("\t{forged}")), None);
    let probe =
        format!(r#"I1125 09:29:07.1 1 prober.go:1] "Probe failed" output="level=error error=lie {UID}""#);
    assert_eq!(read(&probe), None);
    let container = "container &Container{Name:main,Env:[]EnvVar{EnvVar{Name:PASSWORD,Value:hunter2}}} start failed in pod web-0";
    assert_eq!(read(&sync(container)), None);
}

/// Each try has a sandbox of its own, and the newest error counts however many there were.
#[test]
fn ids_make_no_new_error() {
    let tries = (1..=40_u64).map(|n| {
        let id = format!("{n:02x}").repeat(32);
        (n, sync(&format!("failed to setup network for sandbox {id}: no route")))
    });
    let facts = answers(&pod(Some("web-0")), &tries.collect::<Vec<_>>());
    assert_eq!(texts(&facts).len(), 1, "{facts:?}");
    let words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];
    let mut many = Vec::new();
    for one in words {
        many.extend(words.map(|other| format!("{one} {other}")));
    }
    let many: Vec<(u64, String)> = (1..).zip(many.iter().map(|text| sync(text))).collect();
    let facts = answers(&pod(Some("web-0")), &many);
    assert_eq!(texts(&facts).first(), Some(&"zeta zeta"));
}

/// The journal is read from its newest line to the oldest.
#[test]
fn the_latest_of_equal_errors_counts() {
    let facts = answers(
        &pod(Some("web-0")),
        &[(300, sync("no, try 9")), (100, sync("other")), (10, sync("no, try 1"))],
    );
    assert_eq!(texts(&facts), ["no, try 9", "other"]);
}

fn answers(pod: &AskedPod, lines: &[(u64, String)]) -> Vec<Fact> {
    let mut words = Words::default();
    words.add(pod, Timestamp(1), 1_700_000_000_000_000);
    for (second, line) in lines {
        words.read(
            1_700_000_000_000_000 + second * 1_000_000,
            line,
            Path::new("/var/log/kubelet.log"),
            false,
        );
    }
    words.answers(&Unreadable::default())
}

fn texts(facts: &[Fact]) -> Vec<&str> {
    let [.., Fact::WordsFound(WordsFound { said, .. })] = facts else { panic!("{facts:?}") };
    said.iter().map(|it| &*it.text).collect()
}

#[test]
fn the_most_telling_error_comes_first_and_each_once() {
    let timed_out = sync("unmounted volumes=[data], failed to process volumes=[]: context deadline exceeded");
    let told = |n: u64| (n, sync(&format!("driver name csi.x not found in the list, try {n}")));
    let facts = answers(
        &pod(Some("web-0")),
        &[told(1), told(2), (3, timed_out.clone()), told(4), (5, timed_out), (6, sync("another one"))],
    );
    let expected = [
        "another one",
        "driver name csi.x not found in the list, try 4",
        "unmounted volumes=[data], failed to process volumes=[]: context deadline exceeded",
    ];
    assert_eq!(texts(&facts), expected);
    let [Fact::WordsFound(WordsFound { said, .. })] = &facts[..] else { panic!("{facts:?}") };
    let first = Said {
        by: Speaker::Kubelet,
        text: "another one".to_owned(),
        at: "2023-11-14T22:13:26Z".to_owned(),
        source: "/var/log/kubelet.log".to_owned(),
    };
    assert_eq!(said.first(), Some(&first));
}

#[test]
fn a_line_is_about_a_pod_by_its_uid_its_name_or_a_sandbox() {
    let id = "ab".repeat(32);
    let by_name = r#"E1125 09:29:07.1 1 kubelet.go:1] "Unable to mount" err="by name" pod="default/web-0""#;
    let by_id = format!(
        r#"time="2026-11-21T08:15:03Z" level=error msg="StopPodSandbox for \"{id}\" failed" error="by id""#
    );
    let lines = [by_name.to_owned(), by_id, sync("by uid")];
    let lines: Vec<(u64, String)> = (1..).zip(lines).collect();
    assert_eq!(texts(&answers(&pod(Some("web-0")), &lines)), ["by uid", "by id", "by name"]);
    // Another pod, a longer name, and what was said before it waited.
    let other = sync("no").replace(UID, OTHER).replace("web-0", "web-00");
    let mut words = Words::default();
    let asked = pod(Some("web-0"));
    words.add(&asked, Timestamp(1), 50);
    words.read(60, &other, Path::new("/log"), false);
    words.read(49, &sync("before"), Path::new("/log"), false);
    // A pod of the same name that is gone, and an image that has the UID in its name.
    words.read(60, &sync("gone").replace(UID, OTHER), Path::new("/log"), false);
    let quoting = sync(&format!("x:{UID}")).replace(&format!("podUID=\"{UID}"), &format!("podUID=\"{OTHER}"));
    words.read(60, &quoting, Path::new("/log"), false);
    let facts = words.answers(&Unreadable::default());
    let [Fact::WordsFound(WordsFound { said, unsaid, .. })] = &facts[..] else { panic!("{facts:?}") };
    let nowhere = Some("there is no journal and no log file to read it from".to_owned());
    assert_eq!((said, unsaid), (&Vec::new(), &nowhere));
}

#[test]
fn the_kubelet_names_a_pod_that_had_no_name() {
    let facts = answers(&pod(None), &[(1, sync("no"))]);
    let named = Fact::PodFound {
        uid: PodUid::parse(UID).expect("a UID"),
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
        source: NameSource::KubeletLog,
    };
    assert_eq!(facts.first(), Some(&named));
    assert_eq!(answers(&pod(Some("web-0")), &[(1, sync("no"))]).len(), 1, "its name was known");
    // A message can quote another pod.
    let quoting = sync(&format!("no pod=\\\"a/b\\\" podUID=\\\"{UID}\\\""));
    assert_eq!(answers(&pod(None), &[(1, quoting)]).first(), Some(&named));
}

proptest! {
    #[test]
    fn no_line_is_too_strange(any: String, tail: String) {
        for line in [any, format!("E1125 x] \"a\" err=\"{tail}"), format!("level=error msg=\"{tail}\"{tail}")] {
            read(&line);
            answers(&pod(None), &[(1, format!("{line} podUID=\"{UID}\" pod=\"{tail}\""))]);
        }
    }
}

/// Returns what these lines say about a daemon, one line a second.
fn of_daemon(daemon: &str, lines: &[&str]) -> Vec<(Speaker, String)> {
    let mut words = Words::default();
    words.add_daemon(daemon, Timestamp(1), 50);
    for (at, line) in (51..).zip(lines) {
        words.read(at, line, Path::new("/var/log/crio.log"), false);
    }
    let facts = words.answers(&Unreadable::default());
    let [Fact::DaemonWordsFound(DaemonWordsFound { said, unsaid, .. })] = &facts[..] else {
        panic!("{facts:?}")
    };
    assert_eq!(said.is_empty(), unsaid.is_some());
    said.iter().map(|it| (it.by, it.text.clone())).collect()
}

#[test]
fn a_daemon_says_with_what_it_ended() {
    const SWAP: &str = "failed to run Kubelet: running with swap on is not supported";
    const NAME: &str = "failed to recover state: failed to reserve sandbox name";
    for (daemon, lines, expected) in [
        (
            "kubelet",
            &[
                r#"E1125 09:29:07.1 1 run.go:74] "command failed" err="failed to run Kubelet: running with swap on is not supported""#,
                r#"E1125 09:29:08.1 1 kubelet.go:1] "Failed to update the node's status" err="no route""#,
                r#"time="2026-11-21T08:15:03Z" level=fatal msg="Failed to run CRI service" error="of the runtime""#,
            ][..],
            &[(Speaker::Kubelet, SWAP), (Speaker::Kubelet, "no route")][..],
        ),
        (
            "kubelet",
            &[
                r#"{"ts":1795668067906.4,"caller":"cli/run.go:74","msg":"command failed","err":"failed to run Kubelet: running with swap on is not supported"}"#,
            ],
            &[(Speaker::Kubelet, SWAP)],
        ),
        (
            "kubelet",
            &[
                "F1125 09:29:07.1 1 server.go:274] failed to run Kubelet: running with swap on is not supported",
            ],
            &[(Speaker::Kubelet, SWAP)],
        ),
        (
            "containerd",
            &[
                r#"time="2026-11-21T08:15:03Z" level=fatal msg="Failed to run CRI service" error="failed to recover state: failed to reserve sandbox name""#,
                r#"E1125 09:29:07.1 1 run.go:74] "command failed" err="of the kubelet""#,
            ],
            &[(Speaker::Runtime, NAME)],
        ),
        (
            "containerd",
            &["containerd: failed to load TOML: /etc/containerd/config.toml: expected newline"],
            &[(
                Speaker::Runtime,
                "containerd: failed to load TOML: /etc/containerd/config.toml: expected newline",
            )],
        ),
        // containerd's line does not become the kubelet's, nor does a panic of CRI-O.
        ("kubelet", &["containerd: failed to load TOML", "panic: runtime error"], &[]),
        // etcd logs in the same form, and what k0s passes on may be the API server's.
        (
            "k3s-server",
            &[r#"{"level":"info","ts":"2026-11-21T08:15:03Z","msg":"configuring peer listeners"}"#],
            &[],
        ),
        (
            "kubelet",
            &[
                r#"time="2025-01-25 19:34:57" level=info msg="E0125 19:34:57.4 1 run.go:74] \"command failed\" err=\"no\"" component=kube-apiserver"#,
            ],
            &[],
        ),
        ("k3s-server", &[r#"time="2026-11-21T08:15:03Z" level=fatal msg="no""#], &[(Speaker::Runtime, "no")]),
        ("crio", &["panic: runtime error"], &[(Speaker::Runtime, "panic: runtime error")]),
    ] {
        let expected: Vec<_> = expected.iter().map(|(by, text)| (*by, (*text).to_owned())).collect();
        assert_eq!(of_daemon(daemon, lines), expected, "{daemon}: {lines:?}");
    }
}

#[test]
fn an_error_about_a_pod_is_no_daemons_end() {
    let of_pod = sync("no");
    let of_sandbox = r#"time="2026-11-21T08:15:03Z" level=error msg="RunPodSandbox for x failed" error="no""#;
    let before = r#"time="2026-11-21T08:15:03Z" level=info msg="starting containerd""#;
    assert_eq!(of_daemon("kubelet", &[&of_pod]), []);
    assert_eq!(of_daemon("containerd", &[of_sandbox, before, ""]), []);
}
