//! How leaked addresses are freed: a record of host-local's only if it is still the record of a sandbox that no runtime
//! knows.

use std::net::IpAddr;

use super::shell::{UNPRINTABLE, crictl, lines, quoted};
use crate::model::id::ContainerId;

/// A function of the shell: `release DIR ADDRESS CONTAINER`.
///
/// host-local locks `DIR/lock` with flock(2) for every ADD and DEL, and keeps a file for each address, with the
/// container's id on the first line. What cannot be checked is kept. Each runtime is asked before the lock is taken,
/// for an answer may take a while and pods must not wait for it: ids are never used again, so what it has forgotten
/// by then stays forgotten.
const RELEASE: &str = r#"release() {
  known=$(known "$3") || { echo "$2 kept: the runtime cannot be asked"; return 1; }
  [ -z "$known" ] || { echo "$2 kept: the runtime knows the sandbox"; return 1; }
  flock -w 10 -- "$1/lock" sh -c '
    [ "$(head -n 1 -- "$1/$2" | tr -d "\r")" = "$3" ] || { echo "$2 kept: it is not what it was"; exit 1; }
    rm -- "$1/$2" && echo "$2 released"' release "$1" "$2" "$3" || return 1
}"#;

/// A function of the shell: `free_ownerless DIR ADDRESS`. A file that is empty or ends within the 64 digits of an id names no
/// sandbox of which a runtime could be asked. Nobody writes it meanwhile: host-local holds the lock until it is written.
const FREE_OWNERLESS: &str = r#"free_ownerless() {
  flock -w 10 -- "$1/lock" sh -c '
    [ -f "$1/$2" ] && [ "$(wc -c <"$1/$2")" -lt 64 ] && [ "$(tr -d 0-9A-Fa-f <"$1/$2" | wc -c)" -eq 0 ] ||
      { echo "$2 kept: its file is neither empty nor cut off within an id"; exit 1; }
    rm -- "$1/$2" && echo "$2 freed"' free_ownerless "$1" "$2" || return 1
}"#;

/// The lines that define it.
pub fn free_ownerless() -> impl Iterator<Item = String> {
    FREE_OWNERLESS.lines().map(str::to_owned)
}

/// The lines that define `release`, for a node whose runtimes answer on these sockets.
#[must_use]
pub fn function(runtimes: &[String]) -> Vec<String> {
    let ask: Vec<String> =
        crictl(runtimes).map(|crictl| format!(r#"{crictl} pods -q --no-trunc --id "$1""#)).collect();
    let known = format!("known() {{ {}; }}", ask.join(" && "));
    [known].into_iter().chain(RELEASE.lines().map(str::to_owned)).collect()
}

/// The call of it; a comment if the directory's name cannot be printed.
#[must_use]
pub fn release(dir: &str, address: IpAddr, container: &ContainerId) -> String {
    match quoted(dir.trim_end_matches('/')) {
        // The others are letters, digits and a few marks, as they were taken in.
        Some(dir) => format!("release {dir} {address} {container}"),
        None => UNPRINTABLE.to_owned(),
    }
}

/// The call of it; a comment if the directory's name cannot be printed.
#[must_use]
pub fn free_ownerless_of(dir: &str, address: IpAddr) -> String {
    quoted(dir.trim_end_matches('/'))
        .map_or_else(|| UNPRINTABLE.to_owned(), |dir| format!("free_ownerless {dir} {address}"))
}

/// How the AWS VPC CNI's ipamd is made to look again.
#[must_use]
pub fn restart_ipamd() -> Vec<String> {
    lines(&[
        "# ipamd drops what has no interface on the node when it reads its checkpoint, at its start. Pods keep",
        "# running meanwhile; new ones wait. $NODE_NAME is this node's name in the cluster.",
        "kubectl -n kube-system delete pod -l k8s-app=aws-node --field-selector \"spec.nodeName=$NODE_NAME\"",
    ])
}

/// A whole script of these lines, to be read before it is run.
#[must_use]
pub fn script(lines: &[String]) -> String {
    let mut text = "#!/bin/sh\n\
        # Frees addresses that no sandbox has, one by one. Each is looked at again first, under the plugin's own\n\
        # lock; what has changed meanwhile is kept. Read it, then run it on the node as root.\n"
        .to_owned();
    for line in lines {
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

    use super::{function, release, script};
    use crate::model::id::ContainerId;

    /// Runs the script with a `crictl` that answers so; gives back what it says.
    fn run(dir: &Path, id: &str, crictl: &str) -> String {
        run_for(&[], dir, id, crictl)
    }

    fn run_for(runtimes: &[String], dir: &Path, id: &str, crictl: &str) -> String {
        let bin = tempfile::tempdir().expect("a folder");
        let tool = bin.path().join("crictl");
        fs::write(&tool, format!("#!/bin/sh\n{crictl}\n")).expect("a file");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a program");
        let id = ContainerId::parse(id).expect("an id");
        let dir = dir.to_str().expect("a name");
        let mut lines = function(runtimes);
        lines.push(release(dir, [10, 88, 0, 5].into(), &id));
        let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").expect("a path"));
        let output = Command::new("sh").args(["-c", &script(&lines)]).env("PATH", path).output();
        String::from_utf8(output.expect("a shell").stdout).expect("text")
    }

    #[test]
    fn a_record_is_freed_only_if_all_is_as_it_was() {
        let dir = tempfile::Builder::new().prefix("it's a net").tempdir().expect("a folder");
        let file = dir.path().join("10.88.0.5");
        fs::write(&file, "e6f3\r\neth0").expect("a file");
        assert_eq!(run(dir.path(), "e6f3", "echo e6f3"), "10.88.0.5 kept: the runtime knows the sandbox\n");
        assert_eq!(run(dir.path(), "e6f3", "exit 1"), "10.88.0.5 kept: the runtime cannot be asked\n");
        assert_eq!(run(dir.path(), "dead", "exit 0"), "10.88.0.5 kept: it is not what it was\n");
        assert!(file.exists());
        assert_eq!(run(dir.path(), "e6f3", "exit 0"), "10.88.0.5 released\n");
        assert!(!file.exists());
        assert_eq!(run(dir.path(), "e6f3", "exit 0"), "10.88.0.5 kept: it is not what it was\n");
    }

    #[test]
    fn only_a_file_that_is_empty_or_cut_off_within_an_id_is_freed() {
        let dir = tempfile::Builder::new().prefix("it's a net").tempdir().expect("a folder");
        let folder = dir.path().to_str().expect("a name");
        let free = |address: &str| {
            let call = super::free_ownerless_of(folder, address.parse().expect("an address"));
            let lines: Vec<String> = super::free_ownerless().chain([call]).collect();
            let output = Command::new("sh").args(["-c", &script(&lines)]).output().expect("a shell");
            String::from_utf8(output.stdout).expect("text")
        };
        let id = "a1".repeat(32);
        let kept = "10.88.0.5 kept: its file is neither empty nor cut off within an id\n";
        let file = dir.path().join("10.88.0.5");
        for ownerless in ["", "a", &id[..63]] {
            fs::write(&file, ownerless).expect("a file");
            assert_eq!(free("10.88.0.5"), "10.88.0.5 freed\n", "{ownerless:?}");
            assert!(!file.exists());
        }
        assert_eq!(free("10.88.0.5"), kept, "no file");
        for held in ["e6f3\r\neth0", "e6f3\n", &id, "cnitool-1", "\0"] {
            fs::write(&file, held).expect("a file");
            assert_eq!((free("10.88.0.5").as_str(), file.exists()), (kept, true), "{held:?}");
        }
    }

    /// crictl's own default is another runtime's socket, or nobody's.
    #[test]
    fn each_runtime_of_the_node_is_asked_on_its_own_socket() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("10.88.0.5");
        fs::write(&file, "e6f3\neth0").expect("a file");
        let k3s = "/run/k3s/containerd/containerd.sock".to_owned();
        let other = "/run/it's other.sock".to_owned();
        let only = |socket: &str, answer: &str| {
            format!("case \"$1 $2\" in '--runtime-endpoint unix://{socket}') {answer};; *) exit 1;; esac")
        };
        let knows = only(&k3s, "echo e6f3");
        let told = run_for(std::slice::from_ref(&k3s), dir.path(), "e6f3", &knows);
        assert_eq!(told, "10.88.0.5 kept: the runtime knows the sandbox\n");
        // One of two does not answer: what it knows is not known.
        let told = run_for(&[k3s.clone(), other.clone()], dir.path(), "e6f3", &only(&k3s, ":"));
        assert_eq!(told, "10.88.0.5 kept: the runtime cannot be asked\n");
        let told = run_for(&[other, k3s.clone()], dir.path(), "e6f3", "[ \"$1\" = --runtime-endpoint ]");
        assert_eq!(told, "10.88.0.5 released\n");
        fs::write(&file, "e6f3\neth0").expect("a file");
        let told = run_for(&["/run/\u{1b}.sock".to_owned()], dir.path(), "e6f3", "exit 0");
        assert_eq!(told, "10.88.0.5 kept: the runtime cannot be asked\n", "a socket that cannot be named");
    }
}
