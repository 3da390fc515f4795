//! `kubectl sandprobe`, with a stand-in for kubectl and a cluster of three nodes. Needs no root.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Writes down how it was called, and answers for the pods as the test says.
const KUBECTL: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "begin $*" >> "$here/calls"
case " $* " in
*" get pods "*) cat "$here/pods.json" ;;
*" get daemonsets "*) cat "$here/sets.json" ;;
*) pod=$(echo " $* " | sed 's/.* exec \([^ ]*\) .*/\1/'); . "$here/$pod" ;;
esac
code=$?
echo "end $*" >> "$here/calls"
exit $code
"#;

/// A folder with the plugin and the stand-in, and what each pod does.
struct Cluster(TempDir);

impl Cluster {
    fn new(pods: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let items: Vec<Value> = pods
            .iter()
            .map(|(node, _)| {
                let owners = json!([{ "kind": "DaemonSet", "uid": "u1", "controller": true }]);
                json!({
                    "metadata": { "name": format!("agent-{node}"), "ownerReferences": owners },
                    "spec": { "nodeName": node, "containers": [{ "name": "sandprobe" }, { "name": "agent" }] },
                    "status": { "phase": "Running" },
                })
            })
            .collect();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("pods.json"), json!({ "items": items }).to_string()).expect("a file");
        let set = json!({ "metadata": { "name": "sandprobe", "uid": "u1" } });
        fs::write(path("sets.json"), json!({ "items": [set] }).to_string()).expect("a file");
        for (node, script) in pods {
            fs::write(path(&format!("agent-{node}")), script).expect("a file");
        }
        symlink(env!("CARGO_BIN_EXE_sandprobe"), path("kubectl-sandprobe")).expect("a link");
        // Copies in another process: a file that this process has open for writing cannot be executed.
        fs::write(path("source"), KUBECTL).expect("a file");
        let copied = Command::new("cp").arg(path("source")).arg(path("kubectl")).status();
        assert!(copied.expect("cp").success());
        fs::set_permissions(path("kubectl"), fs::Permissions::from_mode(0o755)).expect("its mode");
        Self(dir)
    }

    fn run(&self, typed: &str) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let mut command = Command::new(self.0.path().join("kubectl-sandprobe"));
        command.args(typed.split(' ')).env_clear().env("PATH", path).stdin(Stdio::null());
        command.output().expect("the program was built")
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.0.path().join("calls")).expect("kubectl was called");
        calls.lines().map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

const NONE: &str = "echo 'no findings'";
const LEAK: &str = r#"case "$*" in
*json*) echo '{"key":"leaked_address/net/10.1.0.7","kind":"leaked_address"}' ;;
*) echo 'STAGE  KEY'; echo 'confirmed  leaked_address/net/10.1.0.7' ;;
esac"#;
const HANGS: &str = "exec sleep 30";

#[test]
fn a_node_that_hangs_is_named_and_the_others_are_told() {
    let cluster = Cluster::new(&[("a", NONE), ("b", HANGS), ("c", LEAK)]);
    let begun = Instant::now();
    let output = cluster.run("findings --timeout 2");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let told = "== a\nno findings\n\n== c\nSTAGE  KEY\nconfirmed  leaked_address/net/10.1.0.7\n";
    assert_eq!(text(&output.stdout), told);
    assert_eq!(text(&output.stderr), "sandprobe: b: it has not answered within 2 s\n");
    assert_eq!(output.status.code(), Some(2));
}

/// As if kubectl's helper that logs in outlives it.
#[test]
fn what_kubectl_started_is_not_waited_for() {
    let cluster = Cluster::new(&[("a", "sleep 15 & wait"), ("b", NONE), ("c", NONE)]);
    let begun = Instant::now();
    let output = cluster.run("findings --timeout 1");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(text(&output.stdout), "== b, c (2 nodes)\nno findings\n");
    assert_eq!(text(&output.stderr), "sandprobe: a: it has not answered within 1 s\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn as_json_each_line_has_its_node() {
    let cluster = Cluster::new(&[("a", "true"), ("b", HANGS), ("c", LEAK)]);
    let output = cluster.run("findings -o json --timeout 1");
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let leak = json!({ "node": "c", "key": "leaked_address/net/10.1.0.7", "kind": "leaked_address" });
    assert_eq!(lines, [leak]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_code_of_the_command_on_the_nodes_is_kept() {
    let code = |n: u8| {
        format!(
            "echo out; echo 'sandprobe: said' >&2; echo 'command terminated with exit code {n}' >&2; false"
        )
    };
    let cluster = Cluster::new(&[("a", "echo out"), ("b", &code(1)), ("c", "echo out")]);
    let output = cluster.run("leaks");
    assert_eq!(text(&output.stdout), "== a, b, c (3 nodes)\nout\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), "sandprobe: b: said\n"));
    let cluster = Cluster::new(&[("a", "echo out"), ("b", &code(1)), ("c", &code(2))]);
    assert_eq!(cluster.run("doctor").status.code(), Some(2));
    let refused = "echo 'Error from server (Forbidden): pods \"x\" is forbidden' >&2; false";
    let cluster = Cluster::new(&[("a", "echo out"), ("b", refused), ("c", "echo out")]);
    let output = cluster.run("boot");
    assert_eq!(output.status.code(), Some(2), "kubectl's own failure is none of the command");
    assert_eq!(
        text(&output.stderr),
        "sandprobe: b: Error from server (Forbidden): pods \"x\" is forbidden\n"
    );
}

#[test]
fn kubectl_gets_its_flags_and_only_the_wanted_nodes_are_asked() {
    let cluster = Cluster::new(&[("a", NONE), ("b", NONE), ("c", NONE)]);
    let output = cluster.run(
        "findings --kind cni_slow --node b --node d --context prod --kubeconfig /etc/k -n ops -l app=x -c agent",
    );
    let own = "--context prod --kubeconfig /etc/k --namespace ops";
    let begun: Vec<String> = cluster.calls().into_iter().filter(|call| call.starts_with("begin")).collect();
    assert_eq!(
        begun,
        [
            format!("begin {own} get pods --selector app=x --output json"),
            format!("begin {own} get daemonsets --output json"),
            format!("begin {own} exec agent-b -c agent -- /sandprobe findings --kind=cni_slow"),
        ]
    );
    assert_eq!(text(&output.stdout), "== b\nno findings\n");
    assert_eq!(text(&output.stderr), "sandprobe: d: no agent's pod is there\n");
    assert_eq!(output.status.code(), Some(2));
}

/// Whoever may make a pod in the namespace can give it the labels.
#[test]
fn a_pod_that_no_daemon_set_made_is_not_asked() {
    let cluster = Cluster::new(&[("a", NONE), ("b", LEAK)]);
    let file = cluster.0.path().join("pods.json");
    let mut pods: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    pods["items"][1]["metadata"]["ownerReferences"] = json!([]);
    fs::write(&file, pods.to_string()).expect("a file");
    let output = cluster.run("findings");
    assert_eq!(text(&output.stdout), "== a\nno findings\n");
    let said = "sandprobe: agent-b: it has an agent's labels, and no DaemonSet made it: it is not asked\n";
    assert_eq!((text(&output.stderr), output.status.code()), (said, Some(0)));
}

#[test]
fn no_more_nodes_are_asked_at_once_than_wanted() {
    let cluster = Cluster::new(&[("a", "sleep 0.1"), ("b", "sleep 0.1"), ("c", "sleep 0.1")]);
    assert_eq!(cluster.run("boot --parallel 1").status.code(), Some(0));
    let calls = cluster.calls();
    assert_eq!(calls.len(), 10, "{calls:?}");
    for pair in calls.chunks(2) {
        assert_eq!(pair[0].strip_prefix("begin"), pair[1].strip_prefix("end"), "{calls:?}");
    }
}

#[test]
fn what_cannot_be_asked_at_all_is_one_line() {
    let cluster = Cluster::new(&[]);
    let output = cluster.run("findings -n elsewhere");
    let said = text(&output.stderr);
    assert!(said.contains("namespace elsewhere") && said.contains("--selector"), "{said}");
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)));
    fs::remove_file(cluster.0.path().join("kubectl")).expect("the stand-in");
    if Path::new("/usr/bin/kubectl").exists() || Path::new("/bin/kubectl").exists() {
        return;
    }
    let output = cluster.run("findings");
    let said = text(&output.stderr);
    assert_eq!(said, "sandprobe: cannot list the agents' pods: kubectl is not in PATH\n");
    let output = cluster.run("findings --kind nothing");
    assert!(text(&output.stderr).ends_with("see kubectl sandprobe --help\n"), "{}", text(&output.stderr));
    assert!(text(&cluster.run("--help").stdout).contains("kubectl sandprobe"), "the name that is typed");
}
