//! Shell commands that free leaked addresses. A record of host-local is removed only if it still names a
//! sandbox that no runtime knows.

use std::net::IpAddr;

use super::shell::{UNPRINTABLE, crictl, lines, quoted};
use crate::model::{fact::StoreKind, id::ContainerId};

/// A shell function: `locked DIR ADDRESS COMMANDS MORE` runs shell commands under the lock of the store.
///
/// host-local locks `DIR/lock` with flock(2) for every ADD and DEL. Its holder may never release it, so only
/// the first address of a store waits for the lock, and the later ones only try it. Exit code 1 is reserved
/// for flock (the lock was not free), so the commands must not return it.
const LOCKED: &str = r#"locked() {
  seconds=10; [ "$1" != "$held" ] || seconds=0
  flock -w "$seconds" -- "$1/lock" sh -c "$3" sh "$1" "$2" "$4"
  code=$? held=
  [ "$code" -ne 1 ] || { held=$1; echo "$2 kept: another process holds $1/lock (fuser on it shows which)"; }
  return "$code"
}"#;

/// A shell function: `known CONTAINER`, for a node without a known runtime socket. crictl's own default may
/// be the socket of another runtime, which knows no sandbox of this node, so the user of the script must name
/// the socket.
const KNOWN_OF_NONE: &str = r#"known() {
  socket=${CONTAINER_RUNTIME_ENDPOINT:?is not set, and no socket of a runtime is known: set it to unix:///PATH}
  crictl --runtime-endpoint "$socket" pods -q --no-trunc --id "$1"
}"#;

/// A shell function: `release DIR ADDRESS CONTAINER`.
///
/// host-local keeps a file for each address, with the container's id on the first line. What cannot be
/// checked is kept. Each runtime is asked before the lock is taken, because an answer may take a while and
/// pods must not wait for it. Ids are never reused, so a sandbox that the runtime has forgotten by then stays
/// forgotten.
const RELEASE: &str = r#"release() {
  is_free "$1" "$2" && return 0
  known=$(known "$3") || { echo "$2 kept: the runtime cannot be asked"; return 1; }
  [ -z "$known" ] || { echo "$2 kept: the runtime knows the sandbox"; return 1; }
  locked "$1" "$2" '
    [ "$(head -n 1 -- "$1/$2" | tr -d "\r")" = "$3" ] || { echo "$2 kept: it is not what it was"; exit 3; }
    rm -- "$1/$2" || exit 3
    echo "$2 released"' "$3" || return 1
}"#;

/// A shell function: `is_free DIR ADDRESS` says so if the store has no file of the address, as when the
/// script is run again.
const IS_FREE: &str = r#"is_free() {
  [ -d "$1" ] && [ ! -e "$1/$2" ] && [ ! -L "$1/$2" ] && echo "$2 is free already"
}"#;

/// A shell function: `free_ownerless DIR ADDRESS`. A file that is empty names no sandbox. If it ends within
/// the 64 digits of an id, no runtime may have a sandbox whose id begins so. It is not being written:
/// host-local holds the lock until it has written it.
const FREE_OWNERLESS: &str = r#"free_ownerless() {
  is_free "$1" "$2" && return 0
  if [ -f "$1/$2" ] && [ -s "$1/$2" ] && [ "$(tr -d 0-9A-Fa-f <"$1/$2" | wc -c)" -eq 0 ]; then
    known=$(known "$(head -c 64 -- "$1/$2")") || { echo "$2 kept: the runtime cannot be asked"; return 1; }
    [ -z "$known" ] || { echo "$2 kept: the runtime knows a sandbox whose id begins so"; return 1; }
  fi
  locked "$1" "$2" '
    [ -f "$1/$2" ] && [ "$(wc -c <"$1/$2")" -lt 64 ] && [ "$(tr -d 0-9A-Fa-f <"$1/$2" | wc -c)" -eq 0 ] ||
      { echo "$2 kept: its file is neither empty nor cut off within an id"; exit 3; }
    rm -- "$1/$2" || exit 3
    echo "$2 freed"' || return 1
}"#;

/// A shell function: `del_again CONTAINER ADDRESS INTERFACE NAMESPACE POD` calls DEL of UCloud's plugin, of
/// Azure's, or of the one that calls Azure's IPAM, as the runtime would. The variables of the folders are
/// cnitool's. UCloud's configuration is no list. A configuration of multus holds that of another plugin.
const DEL_AGAIN: &str = r#"del_again() {
  known=$(known "$1") || { echo "$2 kept: the runtime cannot be asked"; return 1; }
  [ -z "$known" ] || { echo "$2 kept: the runtime knows the sandbox"; return 1; }
  ! in_use "$2" || return 1
  dir=${NETCONFPATH:-/etc/cni/net.d}
  for conf in "$dir"/*.conflist "$dir"/*.conf; do
    plugin=$(jq -r '.plugins[0] // . | select([.type, .ipam.type] | map(. // "") | any(startswith("azure-") or . == "cnivpc")) | .type' \
      "$conf" 2>/dev/null)
    [ -z "$plugin" ] || break
  done
  [ -n "$plugin" ] || { echo "$2 kept: no configuration in $dir names the plugin"; return 1; }
  jq -c '{cniVersion, name} + (.plugins[0] // .)' "$conf" |
    CNI_COMMAND=DEL CNI_CONTAINERID=$1 CNI_NETNS='' CNI_IFNAME=$3 CNI_PATH=${CNI_PATH:-/opt/cni/bin} \
    CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=$4;K8S_POD_NAME=$5;K8S_POD_INFRA_CONTAINER_ID=$1" \
    "${CNI_PATH:-/opt/cni/bin}/$plugin" || return 1
  [ ! -e "/var/run/azure-vnet/deleteIDs/$1" ] || { echo "$2 kept: its release waits for azure-cns"; return 1; }
  echo "$2: DEL succeeded"
}"#;

/// Which shell functions a script needs.
#[derive(Clone, Copy, Debug)]
pub enum Functions {
    Release,
    FreeOwnerless,
    Both,
}

/// Returns the lines that define these functions, for a node whose runtimes answer on these sockets.
#[must_use]
pub fn functions(wanted: Functions, runtimes: &[String]) -> Vec<String> {
    let known = known(runtimes);
    let own = match wanted {
        Functions::Release => &[RELEASE][..],
        Functions::FreeOwnerless => &[FREE_OWNERLESS],
        Functions::Both => &[RELEASE, FREE_OWNERLESS],
    };
    let all = [&*known, LOCKED, IS_FREE];
    all.iter().chain(own).flat_map(|function| function.lines()).map(str::to_owned).collect()
}

fn known(runtimes: &[String]) -> String {
    if runtimes.is_empty() {
        return KNOWN_OF_NONE.to_owned();
    }
    let ask: Vec<String> =
        crictl(runtimes).map(|crictl| format!(r#"{crictl} pods -q --no-trunc --id "$1""#)).collect();
    format!("known() {{ {}; }}", ask.join(" && "))
}

/// A shell function: `in_use ADDRESS` says whether a pod may have the address. UCloud's plugin frees the
/// address that its record names, whoever has it by now. It makes a route on the node to the address of each
/// pod, which the kernel removes with the pod's interface.
const HAS_ROUTE: &str = r#"in_use() {
  route=$(ip route show "$1") || { echo "$1 kept: the routes cannot be asked"; return 0; }
  [ -n "$route" ] || return 1
  echo "$1 kept: an interface has it: $route"
}"#;

/// Azure's plugin frees an address by its sandbox.
const BY_SANDBOX: &str = "in_use() { false; }";

/// Returns the lines that define `del_again` for a kind of store, on a node whose runtimes answer on these
/// sockets.
#[must_use]
pub fn del_again(kind: StoreKind, runtimes: &[String]) -> Vec<String> {
    let (about, in_use) = if kind == StoreKind::UcloudIpamd {
        let about = "# The plugin frees the address when DEL is called for the sandbox again. ipamd must answer: while it hangs, DEL\n\
             # succeeds and frees nothing. So look again afterwards (sandprobe leaks). This needs jq.";
        (about, HAS_ROUTE)
    } else {
        let about = "# Azure CNI has no command that frees one address. Its plugin frees it when DEL is called for the sandbox again;\n\
         # azure-cns must run. This needs jq.";
        (about, BY_SANDBOX)
    };
    let all = [about, &known(runtimes), in_use, DEL_AGAIN];
    all.iter().flat_map(|part| part.lines()).map(str::to_owned).collect()
}

/// Returns the call of `del_again`. `pod`: the namespace and the name; where they are not known, the user of
/// the command sets them.
#[must_use]
pub fn del_again_for(
    address: IpAddr,
    container: &ContainerId,
    ifname: &str,
    pod: Option<(&str, &str)>,
) -> String {
    let ifname = if ifname.is_empty() { "eth0" } else { ifname };
    let named = pod.and_then(|(namespace, name)| quoted(namespace).zip(quoted(name)));
    match (quoted(ifname), named) {
        (Some(ifname), Some((namespace, name))) => {
            format!("del_again {container} {address} {ifname} {namespace} {name}")
        }
        (Some(ifname), None) => format!(
            "del_again {container} {address} {ifname} \"${{NAMESPACE:?set it to the namespace of the pod}}\" \"${{POD:?set it to the name of the pod}}\""
        ),
        (None, _) => UNPRINTABLE.to_owned(),
    }
}

/// Returns the command that restarts azure-cns, so that it works through its queue.
#[must_use]
pub fn restart_cns() -> Vec<String> {
    lines(&[
        "# azure-cns frees what is in its queue (/var/run/azure-vnet/deleteIDs) after its start. Pods keep running",
        "# meanwhile; new ones wait. $NODE_NAME is this node's name in the cluster.",
        "kubectl -n kube-system delete pod -l k8s-app=azure-cns --field-selector \"spec.nodeName=$NODE_NAME\"",
    ])
}

/// What the reader of a command for Cilium's pods must fill in.
const CILIUM_PODS: &str =
    "# $NODE_NAME is this node's name in the cluster. Cilium's namespace may be another than kube-system.";

/// Returns the command that makes Cilium's agent remove the endpoint of a sandbox.
#[must_use]
pub fn disconnect(container: &ContainerId, ifname: &str) -> Vec<String> {
    let endpoint = if ifname.is_empty() {
        format!("container-id:{container}")
    } else {
        format!("cni-attachment-id:{container}:{ifname}")
    };
    let Some(endpoint) = quoted(&endpoint) else { return lines(&[UNPRINTABLE]) };
    lines(&[
        "# Cilium's agent frees the address when it removes the endpoint. By itself it does so within 10 minutes if the",
        "# interface is gone. If the agent does not run, start it: at its start it removes endpoints without an interface.",
        "# If it runs, first see that no runtime knows the sandbox; this must print nothing:",
        &format!("# crictl pods -q --no-trunc --id {container}"),
        CILIUM_PODS,
        &format!(
            "kubectl -n kube-system exec -c cilium-agent \"$(kubectl -n kube-system get pod -o name -l k8s-app=cilium --field-selector \"spec.nodeName=$NODE_NAME\")\" -- cilium-dbg endpoint disconnect {endpoint}"
        ),
    ])
}

/// Returns the command that restarts Cilium's agent, so that it works through its queue.
#[must_use]
pub fn restart_cilium() -> Vec<String> {
    lines(&[
        "# Cilium's agent works through its queue (/var/run/cilium/deleteQueue) at its start, after it has restored its",
        "# endpoints. If it does not run, the log of its pod says why. If it has just started, wait. If it has run for over",
        "# 12 minutes, restart it. Meanwhile pods keep running, new ones wait, and DNS fails in pods with DNS policies.",
        CILIUM_PODS,
        "kubectl -n kube-system delete pod -l k8s-app=cilium --field-selector \"spec.nodeName=$NODE_NAME\"",
    ])
}

/// Returns the commands that free what Calico itself finds leaked. They release nothing by themselves: the
/// reader sees the report first. Only its release compares handles and sequence numbers.
#[must_use]
pub fn release_in_calico() -> Vec<String> {
    lines(&[
        "# calico-kube-controllers frees what has no pod after 15 to 30 minutes, and did not: see whether it runs, and whether",
        "# its leakGracePeriod is 0. Calico's own check finds what leaked in the whole cluster. It frees from a report that was",
        "# made under the lock. While the lock is held, no pod of the cluster gets an address.",
        "calicoctl datastore migrate lock",
        "calicoctl ipam check --show-problem-ips -o report.json",
        "# Read report.json. If all of it is right, free all of it before you unlock:",
        "# calicoctl ipam release --from-report=report.json",
        "# In any case:",
        "calicoctl datastore migrate unlock",
    ])
}

/// Returns the call of `release`; a comment if the directory's name cannot be printed.
#[must_use]
pub fn release(dir: &str, address: IpAddr, container: &ContainerId) -> String {
    match quoted(dir.trim_end_matches('/')) {
        // The address and the id are only letters, digits and a few marks: they were parsed.
        Some(dir) => format!("release {dir} {address} {container}"),
        None => UNPRINTABLE.to_owned(),
    }
}

/// Returns the call of `free_ownerless`; a comment if the directory's name cannot be printed.
#[must_use]
pub fn free_ownerless_of(dir: &str, address: IpAddr) -> String {
    quoted(dir.trim_end_matches('/'))
        .map_or_else(|| UNPRINTABLE.to_owned(), |dir| format!("free_ownerless {dir} {address}"))
}

/// Returns the command that restarts the AWS VPC CNI's ipamd, so that it reads its checkpoint again.
#[must_use]
pub fn restart_ipamd() -> Vec<String> {
    lines(&[
        "# ipamd drops what has no interface on the node when it reads its checkpoint, at its start. Pods keep",
        "# running meanwhile; new ones wait. $NODE_NAME is this node's name in the cluster.",
        "kubectl -n kube-system delete pod -l k8s-app=aws-node --field-selector \"spec.nodeName=$NODE_NAME\"",
    ])
}

/// A shell function: `try REPAIR...` runs one repair of a script and counts how it ends.
const TRY: &str = "repaired=0 failed=0 left=0
try() { if \"$@\"; then repaired=$((repaired + 1)); else failed=$((failed + 1)); fi; }";

/// The end of a script. It fails if a repair did, or if there is no command for one.
const SUMMARY: &str = r#"echo "repairs: $repaired succeeded, $failed failed or were refused, $left left to you"
[ "$((failed + left))" -eq 0 ]"#;

/// Returns the call of a repair as a script has it, which counts it. A comment is in place of a command that
/// there is not, and is counted as left to the reader.
#[must_use]
pub fn counted(call: String) -> String {
    if call.starts_with('#') { format!("{call}\nleft=$((left + 1))") } else { format!("try {call}") }
}

/// Makes a whole script of these lines, to be read before it is run. Its exit code is 0 if every repair that
/// is [`counted`] has succeeded.
#[must_use]
pub fn script(lines: &[String]) -> String {
    let mut text = "#!/bin/sh\n\
        # Frees addresses that no sandbox has, one by one. Each is looked at again first, under the plugin's own\n\
        # lock; what has changed meanwhile is kept. Read it, then run it on the node as root. It ends with exit\n\
        # code 0 if every repair in it has succeeded.\n"
        .to_owned();
    for line in [TRY].into_iter().chain(lines.iter().map(String::as_str)).chain([SUMMARY]) {
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

    use super::{
        Functions, UNPRINTABLE, counted, del_again, del_again_for, disconnect, free_ownerless_of, functions,
        release, script,
    };
    use crate::model::{fact::StoreKind, id::ContainerId};

    const SOCKET: &str = "/run/containerd/containerd.sock";
    const ENDPOINT: &str = "CONTAINER_RUNTIME_ENDPOINT";

    /// Runs the script for a runtime with this `crictl`; returns its output.
    fn run(dir: &Path, id: &str, crictl: &str) -> String {
        run_for(&[SOCKET.to_owned()], dir, id, crictl)
    }

    fn run_for(runtimes: &[String], dir: &Path, id: &str, crictl: &str) -> String {
        let id = ContainerId::parse(id).expect("an id");
        let call = release(dir.to_str().expect("a name"), [10, 88, 0, 5].into(), &id);
        let lines: Vec<String> = functions(Functions::Release, runtimes).into_iter().chain([call]).collect();
        repairs(&lines, crictl)
    }

    /// Returns what a script of these lines says before its summary.
    fn repairs(lines: &[String], crictl: &str) -> String {
        let told = told(lines, crictl).0;
        told.split("repairs: ").next().expect("text").to_owned()
    }

    /// Returns the output and the exit code of a script of these lines with this `crictl`.
    fn told(lines: &[String], crictl: &str) -> (String, Option<i32>) {
        let (said, _, code) = run_in("sh", lines, crictl, None);
        (said, code)
    }

    /// Runs the script in this shell with this runtime endpoint; also returns its error output.
    fn run_in(
        shell: &str,
        lines: &[String],
        crictl: &str,
        endpoint: Option<&str>,
    ) -> (String, String, Option<i32>) {
        let bin = tempfile::tempdir().expect("a folder");
        let tool = bin.path().join("crictl");
        fs::write(&tool, format!("#!/bin/sh\n{crictl}\n")).expect("a file");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a program");
        let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(shell);
        command.args(["-c", &script(lines)]).env("PATH", path).env_remove(ENDPOINT);
        let output = command.envs(endpoint.map(|it| (ENDPOINT, it))).output().expect("a shell");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr), output.status.code())
    }

    /// The agent knows an endpoint by its container and interface. Older agents did not write the interface.
    #[test]
    fn an_endpoint_of_cilium_is_disconnected_by_the_name_that_its_agent_knows() {
        let id = ContainerId::parse(&"a".repeat(64)).expect("an id");
        let call = |ifname| disconnect(&id, ifname).pop().expect("a command");
        let end = format!("-- cilium-dbg endpoint disconnect 'cni-attachment-id:{id}:eth0'");
        assert!(call("eth0").ends_with(&end), "{}", call("eth0"));
        assert!(call("").ends_with(&format!(" disconnect 'container-id:{id}'")), "{}", call(""));
        let quoted = format!("{id}:'Q';reboot'Q''").replace('Q', r"\'");
        assert!(call("';reboot'").ends_with(&quoted), "{}", call("';reboot'"));
        assert_eq!(disconnect(&id, "\u{1b}[2J"), [UNPRINTABLE]);
        // The inner kubectl finds the pod of the agent on the node, and the outer one runs the command there.
        let kubectl = r#"case $* in
            *' get pod -o name -l k8s-app=cilium --field-selector spec.nodeName=n1') echo pod/cilium-x ;;
            *) echo "$*" ;;
        esac"#;
        let text = format!("kubectl() {{ {kubectl}\n}}\n{}", disconnect(&id, "eth0").join("\n"));
        let ran = Command::new("sh").args(["-c", &text]).env("NODE_NAME", "n1").output().expect("a shell");
        let expected = format!(
            "-n kube-system exec -c cilium-agent pod/cilium-x -- cilium-dbg endpoint disconnect cni-attachment-id:{id}:eth0\n"
        );
        assert_eq!(String::from_utf8(ran.stdout).expect("text"), expected);
    }

    /// The user of the script must name the runtime, or nothing is freed.
    #[test]
    fn where_no_runtime_is_known_crictl_s_own_default_is_not_asked() {
        let of_other = "[ \"$1\" = --runtime-endpoint ] && [ \"$2\" != unix:///run/own.sock ] || echo e6f3";
        for shell in ["dash", "bash"] {
            let dir = tempfile::tempdir().expect("a folder");
            let file = dir.path().join("10.88.0.5");
            fs::write(&file, "e6f3\neth0").expect("a file");
            let id = ContainerId::parse("e6f3").expect("an id");
            let mut lines = functions(Functions::Release, &[]);
            lines.push(counted(release(dir.path().to_str().expect("a name"), [10, 88, 0, 5].into(), &id)));
            let (said, why, code) = run_in(shell, &lines, "exit 0", None);
            let none = "repairs: 0 succeeded, 1 failed or were refused, 0 left to you\n";
            let expected = format!("10.88.0.5 kept: the runtime cannot be asked\n{none}");
            assert_eq!((said, code), (expected, Some(1)), "{shell}");
            assert!(why.contains("no socket of a runtime is known"), "{shell}: {why}");
            let (said, ..) = run_in(shell, &lines, of_other, Some("unix:///run/own.sock"));
            assert_eq!(said, format!("10.88.0.5 kept: the runtime knows the sandbox\n{none}"), "{shell}");
            assert!(file.exists());
            let (said, _, code) = run_in(shell, &lines, "exit 0", Some("unix:///run/own.sock"));
            let one = "repairs: 1 succeeded, 0 failed or were refused, 0 left to you\n";
            assert_eq!((said, code), (format!("10.88.0.5 released\n{one}"), Some(0)), "{shell}");
        }
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
        // The script is run again.
        assert_eq!(run(dir.path(), "e6f3", "exit 0"), "10.88.0.5 is free already\n");
    }

    #[test]
    fn only_a_file_that_is_empty_or_cut_off_within_an_id_is_freed() {
        let dir = tempfile::Builder::new().prefix("it's a net").tempdir().expect("a folder");
        let folder = dir.path().to_str().expect("a name");
        let free = |address: &str| {
            let call = free_ownerless_of(folder, address.parse().expect("an address"));
            let mut lines = functions(Functions::FreeOwnerless, &[SOCKET.to_owned()]);
            lines.push(call);
            repairs(&lines, "[ \"$7\" != beef ] || echo beefbeef")
        };
        let id = "a1".repeat(32);
        let kept = "10.88.0.5 kept: its file is neither empty nor cut off within an id\n";
        let file = dir.path().join("10.88.0.5");
        for ownerless in ["", "a", &id[..63]] {
            fs::write(&file, ownerless).expect("a file");
            assert_eq!(free("10.88.0.5"), "10.88.0.5 freed\n", "{ownerless:?}");
            assert!(!file.exists());
        }
        assert_eq!(free("10.88.0.5"), "10.88.0.5 is free already\n");
        fs::write(&file, "beef").expect("a file");
        let known = "10.88.0.5 kept: the runtime knows a sandbox whose id begins so\n";
        assert_eq!((free("10.88.0.5").as_str(), file.exists()), (known, true));
        for held in ["e6f3\r\neth0", "e6f3\n", &id, "cnitool-1", "\0"] {
            fs::write(&file, held).expect("a file");
            assert_eq!((free("10.88.0.5").as_str(), file.exists()), (kept, true), "{held:?}");
        }
    }

    /// The plugin is called as the runtime would call it, and only for a sandbox that no runtime knows.
    #[test]
    fn del_is_called_again_for_a_sandbox_that_no_runtime_knows() {
        let node = tempfile::tempdir().expect("a folder");
        let (conf, plugin) = (node.path().join("10-azure.conflist"), node.path().join("azure-vnet"));
        fs::write(conf, r#"{"name":"azure","plugins":[{"type":"azure-vnet"}]}"#).expect("a file");
        let env =
            r#"echo "$CNI_COMMAND ${CNI_CONTAINERID#????????????} <$CNI_NETNS> $CNI_IFNAME $CNI_ARGS"; cat"#;
        fs::write(&plugin, format!("#!/bin/sh\n{env}\n")).expect("a file");
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).expect("a program");
        let id = ContainerId::parse("0123456789abcd").expect("an id");
        let told_of = |crictl: &str, pod: Option<(&str, &str)>| {
            let folder = node.path().display();
            let mut lines = vec![format!("NETCONFPATH='{folder}' CNI_PATH='{folder}'")];
            // jq is not everywhere.
            lines.push(r#"jq() { [ "$1" = -c ] && echo '{"name":"azure"}' || echo azure-vnet; }"#.to_owned());
            lines.extend(del_again(StoreKind::AzureCns, &[SOCKET.to_owned()]));
            lines.push(del_again_for([10, 7, 0, 9].into(), &id, "", pod));
            repairs(&lines, crictl)
        };
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=it's;K8S_POD_INFRA_CONTAINER_ID=0123456789abcd";
        assert_eq!(
            told_of("exit 0", Some(("shop", "it's"))),
            format!("DEL cd <> eth0 {args}\n{{\"name\":\"azure\"}}\n10.7.0.9: DEL succeeded\n")
        );
        assert_eq!(
            told_of("echo 0123456789abcd", Some(("shop", "cart-0"))),
            "10.7.0.9 kept: the runtime knows the sandbox\n"
        );
        assert_eq!(
            told_of("exit 1", Some(("shop", "cart-0"))),
            "10.7.0.9 kept: the runtime cannot be asked\n"
        );
        assert_eq!(told_of("exit 0", None), "", "the user must name the pod");
    }

    /// UCloud's configuration is one plugin, and no list. Another pod has one of the addresses by now.
    #[test]
    fn del_is_called_again_by_a_configuration_that_is_no_list_and_for_no_address_in_use() {
        let node = tempfile::tempdir().expect("a folder");
        fs::write(node.path().join("05-other.conf"), r#"{"name":"cnivpc-2","type":"x"}"#).expect("a file");
        let conf = r#"{"cniVersion":"0.3.1","name":"cni-vpc-uk8s","type":"cnivpc"}"#;
        fs::write(node.path().join("10-cnivpc.conf"), conf).expect("a file");
        let plugin = node.path().join("cnivpc");
        fs::write(&plugin, "#!/bin/sh\necho \"$CNI_COMMAND\"; cat >/dev/null\n").expect("a file");
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).expect("a program");
        let id = ContainerId::parse("0123456789abcd").expect("an id");
        let folder = node.path().display();
        let mut lines = vec![format!("NETCONFPATH='{folder}' CNI_PATH='{folder}'")];
        lines.push(r#"jq() { [ "${3##*/}" = 10-cnivpc.conf ] && echo cnivpc; }"#.to_owned());
        lines.push(r#"ip() { [ "$*" != "route show 10.5.0.8" ] || echo "10.5.0.8 dev ucni1"; }"#.to_owned());
        lines.extend(del_again(StoreKind::UcloudIpamd, &[SOCKET.to_owned()]));
        for address in [[10, 5, 0, 8], [10, 5, 0, 9]] {
            lines.push(del_again_for(address.into(), &id, "", Some(("shop", "cart-0"))));
        }
        assert_eq!(
            repairs(&lines, "exit 0"),
            "10.5.0.8 kept: an interface has it: 10.5.0.8 dev ucni1\nDEL\n10.5.0.9: DEL succeeded\n"
        );
    }

    /// Another process may hold the lock for ever.
    #[test]
    fn a_held_lock_is_reported_for_each_address_and_waited_for_once() {
        let dir = tempfile::Builder::new().prefix("it's a net").tempdir().expect("a folder");
        let folder = dir.path().to_str().expect("a name");
        let free = dir.path().join("free");
        fs::create_dir(&free).expect("a folder");
        fs::write(free.join("10.88.0.9"), "").expect("a file");
        let lock = fs::File::create(dir.path().join("lock")).expect("a file");
        lock.lock().expect("the lock");
        let mut lines = functions(Functions::Both, &[SOCKET.to_owned()]);
        // The first one may wait as long as it likes.
        lines.push("flock() { [ \"$2\" = 0 ] || echo waits; shift 2; command flock -n \"$@\"; }".to_owned());
        let id = ContainerId::parse("e6f3").expect("an id");
        for n in [5, 6] {
            fs::write(dir.path().join(format!("10.88.0.{n}")), "e6f3\n").expect("a file");
            lines.push(counted(release(folder, [10, 88, 0, n].into(), &id)));
        }
        fs::write(dir.path().join("10.88.0.7"), "").expect("a file");
        lines.push(counted(free_ownerless_of(folder, [10, 88, 0, 7].into())));
        lines.push(counted(free_ownerless_of(free.to_str().expect("a name"), [10, 88, 0, 9].into())));
        let (told, code) = told(&lines, "exit 0");
        let kept = format!("kept: another process holds {folder}/lock (fuser on it shows which)");
        let expected = format!(
            "waits\n10.88.0.5 {kept}\n10.88.0.6 {kept}\n10.88.0.7 {kept}\nwaits\n10.88.0.9 freed\n\
             repairs: 1 succeeded, 3 failed or were refused, 0 left to you\n"
        );
        assert_eq!((told, code), (expected, Some(1)));
        assert_eq!([5, 6, 7].map(|n| dir.path().join(format!("10.88.0.{n}")).exists()), [true; 3]);
    }

    /// The last repair alone decided once.
    #[test]
    fn a_script_fails_if_one_of_its_repairs_did() {
        for shell in ["dash", "bash"] {
            for (first, last, code) in
                [(true, true, 0), (false, true, 1), (true, false, 1), (false, false, 1)]
            {
                let repairs = [first, last].map(|is_done| counted(is_done.to_string()));
                let lines = ["# One.".to_owned()].into_iter().chain(repairs).collect::<Vec<_>>();
                let (said, why, ended) = run_in(shell, &lines, "exit 0", None);
                let succeeded = usize::from(first) + usize::from(last);
                let failed = 2 - succeeded;
                let expected = format!(
                    "repairs: {succeeded} succeeded, {failed} failed or were refused, 0 left to you\n"
                );
                assert_eq!((said, ended), (expected, Some(code)), "{shell}: {why}");
            }
            let (said, _, ended) = run_in(shell, &[], "exit 0", None);
            let expected = "repairs: 0 succeeded, 0 failed or were refused, 0 left to you\n";
            assert_eq!((&*said, ended), (expected, Some(0)), "{shell}");
        }
        let lines = [counted("# It cannot be printed.".to_owned()), counted("true".to_owned())];
        let (said, code) = told(&lines, "exit 0");
        let expected = "repairs: 1 succeeded, 0 failed or were refused, 1 left to you\n";
        assert_eq!((&*said, code), (expected, Some(1)));
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
        // One of two does not answer, so it is not known whether it knows the sandbox.
        let told = run_for(&[k3s.clone(), other.clone()], dir.path(), "e6f3", &only(&k3s, ":"));
        assert_eq!(told, "10.88.0.5 kept: the runtime cannot be asked\n");
        let told = run_for(&[other, k3s.clone()], dir.path(), "e6f3", "[ \"$1\" = --runtime-endpoint ]");
        assert_eq!(told, "10.88.0.5 released\n");
        fs::write(&file, "e6f3\neth0").expect("a file");
        let told = run_for(&["/run/\u{1b}.sock".to_owned()], dir.path(), "e6f3", "exit 0");
        assert_eq!(told, "10.88.0.5 kept: the runtime cannot be asked\n", "a socket that cannot be named");
    }
}
