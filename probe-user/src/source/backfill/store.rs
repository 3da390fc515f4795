//! Reads the stores in which IPAM plugins record the addresses that are in use.
//!
//! To add a kind of store, add a file here that implements `Kind`, and a line to `KINDS`.
//!
//! **Invariant:** a store that exists and cannot be read is reported as incomplete.

mod aws_ipamd;
mod azure;
mod cilium;
mod declared;
mod directory;
mod host_local;
#[cfg(test)]
mod reading;
mod ucloud;

pub use declared::Declared;
pub(crate) use host_local::{Elsewhere, elsewhere_in};

use std::{collections::BTreeSet, mem, slice};

use super::{
    Listing, Node,
    network::{self, Configured},
    runtime::daemon::Daemon,
};
use crate::{
    model::{
        fact::{Holder, List, Network, PodName},
        id::ContainerId,
    },
    source::host::{ENTRIES, Entries, Entry, Folder, ReadError, memo::Memo},
};
use directory::Reserved;

/// One kind of store.
trait Kind {
    /// Reports every store of this kind on the node.
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>);
}

/// What is known when the stores are read.
#[derive(Clone, Copy)]
struct Given<'a> {
    node: Node<'a>,
    daemons: &'a [Daemon],
    networks: &'a [Configured],
}

/// The parsed contents of the stores' files.
#[derive(Debug, Default)]
pub(super) struct Memory {
    host_local: Memo<Reserved>,
    pub(super) elsewhere: BTreeSet<Elsewhere>,
    aws_ipamd: Memo<aws_ipamd::Read>,
    azure: azure::Remembered,
    cilium: cilium::Remembered,
    ucloud: ucloud::Remembered,
    declared: Memo<Reserved>,
}

impl Memory {
    pub(super) fn begin(&mut self, wall_ns: i64) {
        self.host_local.begin(wall_ns);
        self.aws_ipamd.begin(wall_ns);
        self.azure.begin(wall_ns);
        self.cilium.begin(wall_ns);
        self.declared.begin(wall_ns);
    }

    /// Forgets what rests on the wall clock, which was set.
    pub(super) fn clock_set(&mut self) {
        let mut azure = mem::take(&mut self.azure);
        let mut cilium = mem::take(&mut self.cilium);
        let ucloud = mem::take(&mut self.ucloud);
        azure.clock_set();
        cilium.clock_set();
        let elsewhere = mem::take(&mut self.elsewhere);
        *self = Self { elsewhere, azure, cilium, ucloud, ..Self::default() };
    }
}

/// A daemon that is asked comes last: it may take its time.
const KINDS: [&dyn Kind; 6] = [
    &host_local::HostLocal,
    &aws_ipamd::AwsIpamd,
    &azure::Azure,
    &cilium::Cilium,
    &declared::Stores,
    &ucloud::Ipamd,
];

/// Plugins that keep the addresses of pods in no file that is read, and where they keep them.
const ELSEWHERE: [(&str, &str); 8] = [
    ("calico-ipam", "at the API server (ipamblocks, ipamhandles)"),
    ("whereabouts", "at the API server (ippools)"),
    ("kube-ovn", "at the API server (ips)"),
    ("spiderpool", "at the API server (spiderippools)"),
    ("ovn-k8s-cni-overlay", "in the annotations of pods, and frees each with its pod"),
    ("cilium-cni", "in another folder than /var/run/cilium/state"),
    ("terway", "in a file that its daemon has locked"),
    (
        "cnivpc",
        "behind ipamd's socket (/run/cni-vpc-ipamd.sock), which is not there, or in a file of its own",
    ),
];

/// Where `/var/run` may be: it may be no link to `/run` on a copy of a node's files.
const RUN: [&str; 2] = ["/var/run", "/run"];

/// The longest name of an interface (`IFNAMSIZ` without the NUL).
const MAX_IFNAME_BYTES: usize = 15;

/// The plugins of those about whose addresses an agent can ask, and the setting for it.
const ASKED: [(&str, &str); 1] = [(
    "calico-ipam",
    "where an agent with --kubernetes-ipam calico asks (the chart's kubernetes.ipam=calico)",
)];

/// Returns which configured plugin is known to keep its addresses elsewhere, and where: the first one.
pub(crate) fn elsewhere(networks: &[Network]) -> Option<String> {
    for network in networks {
        let mut plugins = network.plugins.as_slice();
        if let Some(ipam) = &network.ipam {
            plugins = slice::from_ref(ipam);
        } else if network.delegates.is_empty() {
            // A plugin that comes after another gives out no addresses.
            plugins = plugins.get(..1).unwrap_or_default();
        }
        let known = ELSEWHERE.iter().find(|(name, _)| plugins.iter().any(|plugin| plugin == name));
        if let Some((plugin, place)) = known {
            let asked = ASKED.iter().find(|(name, _)| name == plugin);
            let how = asked.map_or("which sandprobe does not read", |(_, how)| how);
            return Some(format!("{plugin} keeps its addresses {place}, {how}"));
        }
    }
    None
}

/// Lists the configured networks, then the stores.
pub(super) fn list<'a>(
    node: Node<'a>,
    daemons: &[Daemon],
    networks: &mut Memo<Vec<Configured>>,
    memory: &mut Memory,
) -> Listing<'a> {
    let mut list = Listing::begin(List::Ipam, node);
    let networks = network::report(node, daemons, networks, &mut list);
    let given = Given { node, daemons, networks: &networks };
    for kind in KINDS {
        kind.report(given, memory, &mut list);
    }
    list
}

/// Opens the folder in which a plugin queues releases. Returns it with its entries, `None` if it does not
/// exist or cannot be read; then whether all its entries are known.
fn open_queue(given: Given<'_>, list: &mut Listing<'_>, path: &str) -> (Option<(Folder, Vec<Entry>)>, bool) {
    let folder = given.node.root.folder(path).and_then(|folder| Ok((folder.entries()?, folder)));
    let (Entries { entries, not_utf8, left_out }, folder) = match folder {
        Ok(read) => read,
        Err(ReadError::Absent) => return (None, true),
        Err(why) => {
            list.skip(path, why);
            return (None, false);
        }
    };
    let is_whole = left_out == 0;
    if !is_whole {
        list.skip(path, ReadError::TooMany(ENTRIES));
    }
    for name in not_utf8 {
        list.set_aside(folder.path().join(name), ReadError::NotUtf8);
    }
    (Some((folder, entries)), is_whole)
}

/// Returns the holder of an address; `None` if the container id or the interface name is not valid.
fn holder(container: &str, ifname: &str) -> Option<Holder> {
    let container = ContainerId::parse(container)?;
    (ifname.len() <= MAX_IFNAME_BYTES).then(|| Holder { container, ifname: ifname.to_owned() })
}

/// Returns the pod that a record names; `None` if it names none.
fn pod(namespace: &str, name: &str) -> Option<Box<PodName>> {
    (!name.is_empty() && !namespace.is_empty()).then(|| {
        Box::new(PodName { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), uid: None })
    })
}
