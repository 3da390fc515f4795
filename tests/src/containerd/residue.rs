//! Removes what a pod without a CNI DEL leaves in the host's network. The private network's name identifies
//! it.

use std::{
    collections::BTreeSet,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::mount::{MntFlags, umount2};
use serde_json::Value;

use super::{Place, sweep::names};
use crate::{clock, command};

const CACHE: &str = "/var/lib/cni/results";
const ADDRESSES: &str = "/var/lib/cni/networks";

/// Removes the network namespaces and cache files of pods, and the network's addresses.
pub(super) fn remove_pods(place: &Place) -> Result<()> {
    let prefix = format!("{}-", place.network_name());
    for name in names(Path::new(CACHE))? {
        // The file's name is NETWORK-SANDBOX-INTERFACE.
        let Some(sandbox) = name.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once('-')) else {
            continue;
        };
        let file = Path::new(CACHE).join(&name);
        if let Some(namespace) = namespace(&file) {
            let _ = umount2(&namespace, MntFlags::MNT_DETACH);
            remove_file(&namespace)?;
        }
        remove_file(&file)?;
        remove_file(&Path::new(CACHE).join(format!("cni-loopback-{}-lo", sandbox.0)))?;
    }
    match fs::remove_dir_all(Path::new(ADDRESSES).join(place.network_name())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context("remove the network's addresses")
        }
        _ => Ok(()),
    }
}

/// Removes the bridge. Also removes the namespaces of pods whose ADD was interrupted and left no cache file.
pub(super) fn remove_bridge(place: &Place) -> Result<()> {
    let bridge = place.bridge();
    if !Path::new("/sys/class/net").join(&bridge).exists() {
        return Ok(());
    }
    let ports = command::output("ip", &["-json", "link", "show", "master", &bridge])?;
    let namespaces = command::output("ip", &["-json", "netns", "list-id"])?;
    for name in names_behind(&ports, &namespaces) {
        let file = Path::new("/run/netns").join(name);
        let _ = umount2(&file, MntFlags::MNT_DETACH);
        remove_file(&file)?;
    }
    command::run("ip", &["link", "delete", &bridge])
}

/// Returns the names of the namespaces behind the bridge's ports, by the ids that this namespace has for
/// them.
fn names_behind(ports: &str, namespaces: &str) -> Vec<String> {
    let list = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
    let numbers: Vec<_> = list(ports).iter().filter_map(|port| port["link_netnsid"].as_i64()).collect();
    let behind =
        |namespace: &Value| namespace["nsid"].as_i64().is_some_and(|number| numbers.contains(&number));
    let name = |namespace: &Value| namespace["name"].as_str().map(str::to_owned);
    list(namespaces).iter().filter(|namespace| behind(namespace)).filter_map(name).collect()
}

/// Removes the chains and rules whose comments contain the network's name.
pub(super) fn remove_rules(place: &Place) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(10);
    for family in ["iptables", "ip6tables"] {
        let save = || command::output(&format!("{family}-save"), &[]).unwrap_or_default();
        let mut failure = None;
        // A plugin that outlived its containerd may be removing the same rules now.
        let gone = clock::poll(&format!("removal of {family} rules"), LIMIT, || {
            let Some(undo) = undo(&save(), &place.network_name()) else { return Ok(Some(())) };
            failure = restore(&format!("{family}-restore"), &undo).err();
            Ok(None)
        });
        gone.map_err(|late| failure.unwrap_or(late))?;
    }
    Ok(())
}

/// Returns the file of a pod's namespace, from the ADD's result in CNI's cache.
fn namespace(cache: &Path) -> Option<PathBuf> {
    let json: Value = serde_json::from_slice(&fs::read(cache).ok()?).ok()?;
    let interfaces = json["result"]["interfaces"].as_array()?;
    let path = interfaces
        .iter()
        .find_map(|interface| interface["sandbox"].as_str().filter(|path| !path.is_empty()))?;
    Some(PathBuf::from(path))
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the input for `iptables-restore --noflush` that removes the network's part of a saved nat table.
///
/// The bridge plugin gives each pod a chain `CNI-HASH` and a jump to it. Both have the comment `name:
/// "NETWORK" id: "SANDBOX"`.
fn undo(saved: &str, network: &str) -> Option<String> {
    let mark = format!(r#"name: \"{network}\" "#);
    let rules: Vec<_> = saved
        .lines()
        .filter_map(|line| line.strip_prefix("-A "))
        .filter(|rule| rule.contains(&mark))
        .collect();
    let chains: BTreeSet<_> = rules
        .iter()
        .filter_map(|rule| rule.split(' ').next())
        .filter(|chain| chain.starts_with("CNI-"))
        .collect();
    if rules.is_empty() {
        return None;
    }
    let jumps = rules.iter().filter(|rule| !rule.starts_with("CNI-")).map(|rule| format!("-D {rule}\n"));
    let flushes = chains.iter().map(|chain| format!("-F {chain}\n"));
    let removals = chains.iter().map(|chain| format!("-X {chain}\n"));
    Some(format!("*nat\n{}COMMIT\n", jumps.chain(flushes).chain(removals).collect::<String>()))
}

fn restore(program: &str, text: &str) -> Result<()> {
    let mut child = Command::new(program)
        .arg("--noflush")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let mut input = child.stdin.take().ok_or_else(|| anyhow!("{program} has no input"))?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let result = child.wait_with_output()?;
    if !result.status.success() {
        bail!("{program} ended with {}: {}", result.status, String::from_utf8_lossy(&result.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_namespaces_by_the_numbers_of_ports() {
        let ports = r#"[{"ifname":"veth1","link_netnsid":3},{"ifname":"veth2"}]"#;
        let namespaces = r#"[{"nsid":0,"name":"cni-a"},{"nsid":3,"name":"cni-b"},{"nsid":4}]"#;
        assert_eq!(names_behind(ports, namespaces), ["cni-b"]);
        assert!(names_behind("", "").is_empty());
    }

    #[test]
    fn undoes_only_the_rules_of_its_own_network() {
        let saved = r#"*nat
:CNI-aa - [0:0]
:CNI-bb - [0:0]
-A POSTROUTING -s 10.231.0.2/32 -m comment --comment "name: \"ours\" id: \"s1\"" -j CNI-aa
-A POSTROUTING -s 10.9.0.2/32 -m comment --comment "name: \"theirs\" id: \"s2\"" -j CNI-bb
-A CNI-aa -d 10.231.0.0/22 -m comment --comment "name: \"ours\" id: \"s1\"" -j ACCEPT
COMMIT"#;
        let expected = r#"*nat
-D POSTROUTING -s 10.231.0.2/32 -m comment --comment "name: \"ours\" id: \"s1\"" -j CNI-aa
-F CNI-aa
-X CNI-aa
COMMIT
"#;
        assert_eq!(undo(saved, "ours").as_deref(), Some(expected));
        assert_eq!(undo(saved, "nobody"), None);
    }
}
