//! Reads libcni's cache: one file for each interface that an ADD made and no DEL has removed.
//!
//! Since libcni 0.8 a file holds the result and the whole request (`cniCacheV1`); older files hold the result
//! alone.
//!
//! libcni writes a file in place. After a power loss a file may be empty or cut off, and stays so until
//! somebody removes it. Such a file is reported by its name. The list stays complete: the other files, and
//! the absence of others, still count.

mod result;

use std::path::Path;

use probe_common::runtime::CNI_CACHE;
use serde::Deserialize;

use super::{Listing, Node};
use crate::{
    model::{
        fact::{CacheFound, Fact, List},
        id::ContainerId,
    },
    source::host::{ENTRIES, FILE, ReadError, memo::Memo},
};
use result::Outcome;

pub(super) fn list<'a>(node: Node<'a>, memo: &mut Memo<CacheFound>) -> Listing<'a> {
    let mut list = Listing::begin(List::CniCache, node);
    let folder = node.root.folder(CNI_CACHE).and_then(|folder| Ok((folder.entries()?, folder)));
    let Some((entries, folder)) = list.take(CNI_CACHE, folder) else { return list };
    let mut files = memo.of(&folder);
    // libcni names a file after a network, a container and an interface, whose names are all UTF-8.
    for name in entries.not_utf8 {
        list.set_aside(Path::new(CNI_CACHE).join(name), ReadError::NotUtf8);
    }
    for entry in entries.entries {
        let at = list.now();
        match files.read(&entry.name, FILE, |bytes, _| parse(&entry.name, bytes)) {
            Ok(found) => list.found(at, Fact::CacheFound(found)),
            // Removed since the folder was read.
            Err(ReadError::Absent) => {}
            Err(why) => {
                let path = Path::new(CNI_CACHE).join(&entry.name);
                // Any other file, such as an editor's backup, describes no attachment.
                if is_of_attachment(&entry.name) {
                    list.found(at, Fact::CacheUnread { path: path.display().to_string() });
                }
                list.set_aside(path, why);
            }
        }
    }
    if entries.left_out > 0 {
        list.skip(CNI_CACHE, ReadError::TooMany(ENTRIES));
    }
    list
}

#[derive(Debug, Deserialize)]
struct Cached {
    kind: Option<String>,
    #[serde(rename = "containerId")]
    container: Option<String>,
    #[serde(rename = "networkName")]
    network: Option<String>,
    #[serde(rename = "ifName")]
    ifname: Option<String>,
    /// Since libcni 1.2.
    netns: Option<String>,
    #[serde(rename = "cniArgs")]
    args: Option<Vec<(String, String)>>,
    result: Option<Outcome>,
}

fn parse(name: &str, bytes: &[u8]) -> Option<CacheFound> {
    let cached: Cached = serde_json::from_slice(bytes).ok()?;
    if cached.kind.as_deref() != Some("cniCacheV1") {
        let (network, container, ifname) = split(name)?;
        let outcome: Outcome = serde_json::from_slice(bytes).ok()?;
        return Some(CacheFound {
            network: network.to_owned(),
            container,
            ifname: ifname.to_owned(),
            netns: outcome.netns(),
            addresses: outcome.addresses(),
            args: Vec::new(),
        });
    }
    let outcome = cached.result.unwrap_or_default();
    Some(CacheFound {
        network: cached.network?,
        container: ContainerId::parse(&cached.container?)?,
        ifname: cached.ifname?,
        netns: cached.netns.filter(|netns| !netns.is_empty()).or_else(|| outcome.netns()),
        addresses: outcome.addresses(),
        args: cached.args.unwrap_or_default(),
    })
}

/// Returns whether libcni may have given a file this name: `NETWORK-CONTAINER-IFNAME`.
fn is_of_attachment(name: &str) -> bool {
    name.matches('-').count() >= 2
}

/// Splits `NETWORK-CONTAINER-IFNAME`. All parts may hold hyphens, but a container id of 64 hex digits does
/// not.
fn split(name: &str) -> Option<(&str, ContainerId, &str)> {
    let id =
        name.split('-').find(|part| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let (network, ifname) = name.split_once(id)?;
    Some((network.strip_suffix('-')?, ContainerId::parse(id)?, ifname.strip_prefix('-')?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    fn told(name: &str, bytes: &str) -> Option<String> {
        let found = parse(name, bytes.as_bytes())?;
        let addresses: Vec<_> = found.addresses.iter().map(ToString::to_string).collect();
        let (network, id, ifname) = (&found.network, found.container.short(), &found.ifname);
        Some(format!("{network} {id} {ifname} {} {:?} {:?}", addresses.join(","), found.netns, found.args))
    }

    #[test]
    fn a_cache_file_tells_what_was_asked_and_given() {
        let text = r#"{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"podnet",
            "cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","web-0"]],"capabilityArgs":{"portMappings":[]},
            "result":{"cniVersion":"1.0.0","dns":{},"interfaces":[{"mac":"a","name":"cni0"},
            {"mac":"b","name":"eth0","sandbox":"/var/run/netns/cni-1"}],
            "ips":[{"address":"10.88.0.3/16","gateway":"10.88.0.1","interface":1},{"address":"fd00:88::3/64"}]}}"#;
        assert_eq!(
            told("podnet-c1-eth0", text).as_deref(),
            Some(
                "podnet c1 eth0 10.88.0.3/16,fd00:88::3/64 Some(\"/var/run/netns/cni-1\") \
                 [(\"K8S_POD_NAMESPACE\", \"default\"), (\"K8S_POD_NAME\", \"web-0\")]"
            )
        );
    }

    #[test]
    fn old_results_are_told_by_their_name() {
        let id = "0123456789abcdef".repeat(4);
        let text = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24","gateway":"10.1.2.1"},"ip6":{"ip":"fd00::3/64"}}"#;
        let found = told(&format!("my-net-{id}-eth0"), text);
        assert_eq!(found.as_deref(), Some("my-net 0123456789ab eth0 10.1.2.3/24,fd00::3/64 None []"));
        assert_eq!(told("my-net-c1-eth0", text), None);
    }

    #[test]
    fn half_a_file_is_none() {
        for bad in ["", "{", r#"{"kind":"cniCacheV1","containerId":"../x","networkName":"n","ifName":"e"}"#] {
            assert_eq!(told("n-c1-e", bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(name: String, bytes: Vec<u8>) {
            parse(&name, &bytes);
        }
    }
}
