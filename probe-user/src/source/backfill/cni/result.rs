//! The result of an ADD, in every version of the CNI specification.

use serde::Deserialize;

use crate::model::id::Subnet;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Outcome {
    /// From version 0.3.0 on.
    #[serde(default)]
    ips: Vec<Ip>,
    #[serde(default)]
    interfaces: Vec<Interface>,
    /// Before version 0.3.0.
    ip4: Option<OldIp>,
    ip6: Option<OldIp>,
}

#[derive(Debug, Deserialize)]
struct Ip {
    address: String,
}

#[derive(Debug, Deserialize)]
struct OldIp {
    ip: String,
}

#[derive(Debug, Deserialize)]
struct Interface {
    /// The network namespace of the interface; empty or absent for the node's own.
    sandbox: Option<String>,
}

impl Outcome {
    pub(super) fn addresses(&self) -> Vec<Subnet> {
        let old = self.ip4.iter().chain(&self.ip6).map(|old| &old.ip);
        self.ips.iter().map(|ip| &ip.address).chain(old).filter_map(|text| subnet(text)).collect()
    }

    pub(super) fn netns(&self) -> Option<String> {
        self.interfaces.iter().find_map(|interface| interface.sandbox.clone().filter(|path| !path.is_empty()))
    }
}

/// Parses `10.88.0.3/16`.
fn subnet(text: &str) -> Option<Subnet> {
    let (address, prefix) = text.split_once('/')?;
    Some(Subnet { address: address.parse().ok()?, prefix: prefix.parse().ok()? })
}
