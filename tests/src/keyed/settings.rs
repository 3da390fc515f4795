//! The network's configuration: what the plugin reads and the harness writes.

use std::{
    collections::BTreeMap,
    fmt,
    io::Read,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, Error, Result, ensure};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    #[serde(rename = "cniVersion", default)]
    pub cni_version: String,
    /// The directory with a file for each address. Without it the plugin answers only VERSION.
    store: Option<PathBuf>,
    /// Like `10.231.4.0/22`.
    range: Option<String>,
    #[serde(default)]
    pub faults: Faults,
    /// Other faults for pods of these names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_faults: BTreeMap<String, Faults>,
    /// Without this file no ADD succeeds, as with flannel.
    #[serde(rename = "subnetFile", default, skip_serializing_if = "Option::is_none")]
    pub subnet_file: Option<PathBuf>,
    /// Only a GC has them.
    #[serde(rename = "cni.dev/valid-attachments", default, skip_serializing_if = "Option::is_none")]
    pub valid_attachments: Option<Vec<Attachment>>,
}

/// The holder of an address: a sandbox and one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    #[serde(rename = "containerID")]
    pub container: String,
    #[serde(rename = "ifname")]
    pub interface: String,
}

/// The faults that the plugin has on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    pub adds_fail: Times,
    /// Whether an ADD that is made to fail reserves an address that stays.
    pub failed_adds_reserve: bool,
    pub add_takes_ms: u64,
    /// How long an ADD goes on after the address is on its interface.
    pub add_continues_ms: u64,
    /// Which DELs with a namespace fail. A DEL without one never fails.
    pub dels_fail: Times,
}

/// The calls that a fault affects, counted over the life of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    First(u64),
    Always,
}

/// IPv4 addresses with one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    start: u32,
    length: u8,
}

impl Settings {
    #[must_use]
    pub fn new(cni_version: &str, store: &Path, range: &str, faults: Faults) -> Self {
        Self {
            cni_version: cni_version.to_owned(),
            store: Some(store.to_owned()),
            range: Some(range.to_owned()),
            faults,
            pod_faults: BTreeMap::new(),
            subnet_file: None,
            valid_attachments: None,
        }
    }

    pub(super) fn read(from: impl Read) -> Result<Self> {
        serde_json::from_reader(from).context("the network's configuration is invalid")
    }

    /// Returns the faults of a call with these `CNI_ARGS`.
    pub(super) fn faults_of(&self, arguments: &str) -> &Faults {
        let mut pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
        let pod = pairs.find_map(|(name, value)| (name == "K8S_POD_NAME").then_some(value));
        pod.and_then(|pod| self.pod_faults.get(pod)).unwrap_or(&self.faults)
    }

    pub(super) fn store(&self) -> Result<&Path> {
        self.store.as_deref().context("the network's configuration has no store")
    }

    pub(super) fn range(&self) -> Result<Range> {
        self.range.as_deref().context("the network's configuration has no range")?.parse()
    }
}

impl Times {
    pub(super) fn includes(self, failed: u64) -> bool {
        match self {
            Self::First(times) => failed < times,
            Self::Always => true,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::First(0)
    }
}

impl Range {
    pub(super) fn length(self) -> u8 {
        self.length
    }

    pub(super) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.start + 1)
    }

    /// Returns all addresses for pods, beginning after `last` and starting over at the end. The addresses of
    /// the network and of the gateway and the broadcast address are left out.
    pub(super) fn after(self, last: Option<Ipv4Addr>) -> impl Iterator<Item = Ipv4Addr> {
        let (first, end) = (self.start + 2, self.start | !self.mask());
        let next =
            last.map(|last| u32::from(last).saturating_add(1)).filter(|next| (first..end).contains(next));
        let next = next.unwrap_or(first);
        (next..end).chain(first..next).map(Ipv4Addr::from)
    }

    fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.length))
    }
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (start, length) = text.split_once('/').with_context(|| format!("not a range: {text:?}"))?;
        let start: Ipv4Addr = start.parse().with_context(|| format!("not an address: {start:?}"))?;
        let length = length.parse().with_context(|| format!("not a length: {length:?}"))?;
        ensure!((8..=30).contains(&length), "a range is from /8 to /30: {text}");
        let range = Self { start: start.into(), length };
        ensure!(range.start & !range.mask() == 0, "{text} does not begin at its network address");
        Ok(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", Ipv4Addr::from(self.start), self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_for_an_address_begins_after_the_last_one() {
        let range: Range = "10.9.0.0/29".parse().unwrap();
        let octets = |last: Option<&str>| {
            let last = last.map(|last| last.parse().unwrap());
            range.after(last).map(|address| address.octets()[3]).collect::<Vec<_>>()
        };
        assert_eq!(octets(None), [2, 3, 4, 5, 6]);
        assert_eq!(octets(Some("10.9.0.4")), [5, 6, 2, 3, 4]);
        assert_eq!(octets(Some("10.9.0.6")), [2, 3, 4, 5, 6]);
        // The range has changed.
        assert_eq!(octets(Some("10.8.0.6")), [2, 3, 4, 5, 6]);
        assert_eq!(
            (range.gateway().to_string(), range.to_string()),
            ("10.9.0.1".into(), "10.9.0.0/29".into())
        );
    }

    #[test]
    fn an_invalid_range_is_refused() {
        for text in ["", "10.9.0.0", "10.9.0.0/33", "10.9.0.0/31", "10.9.0.1/24", "fd00::/64"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_pod_may_have_faults_of_its_own() {
        let mut settings = Settings::new("0.4.0", Path::new("/s"), "10.9.0.0/29", Faults::default());
        let slow = Faults { add_takes_ms: 5, ..Faults::default() };
        settings.pod_faults.insert("slow-0".to_owned(), slow);
        assert_eq!(settings.faults_of("IgnoreUnknown=1;K8S_POD_NAME=slow-0;K8S_POD_UID=1"), &slow);
        for other in ["", "K8S_POD_NAME=slow-01", "K8S_POD_NAMESPACE=slow-0"] {
            assert_eq!(settings.faults_of(other), &Faults::default(), "{other}");
        }
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        let faults = Faults { dels_fail: Times::Always, adds_fail: Times::First(3), ..Faults::default() };
        let settings = Settings::new("0.4.0", Path::new("/s"), "10.9.0.0/29", faults);
        let text = serde_json::to_vec(&settings).unwrap();
        assert_eq!(Settings::read(text.as_slice()).unwrap(), settings);
        assert_eq!(Settings::read(&b"{}"[..]).unwrap().faults, Faults::default());
    }
}
