//! Reads the state files of Azure CNI, and its queue of releases.
//!
//! Which file has the allocations depends on how the plugin is set up. All are in `/var/run`, which a reboot
//! empties, and are replaced as a whole, so a file that is cut off is damaged. A file stays when the node
//! changes to another one, so the network's configuration decides. None has times: an allocation is as old as
//! the file in which it was first seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::Deserialize;

use super::{super::Listing, Given, Kind, Memory, RUN, holder, open_queue, pod};
use crate::{
    model::{
        fact::{
            Bound, Fact, Holder, Network, PodName, Reservation, ReservationState, Store, StoreKind, StoreRead,
        },
        id::ContainerId,
        time::Timestamp,
    },
    source::host::{FILE, ReadError, memo::Memo},
};

/// The files that azure-vnet writes in place of a release while azure-cns does not answer: each is named by
/// the container's id.
const QUEUE: &str = "azure-vnet/deleteIDs";

/// The files, each with the IPAM plugins that may keep allocations in it.
const FILES: [File; 3] = [
    File {
        kind: StoreKind::AzureVnetIpam,
        ipams: &["azure-vnet-ipam"],
        path: "",
        name: "azure-vnet-ipam.json",
        parse: ipam,
    },
    File {
        kind: StoreKind::AzureVnet,
        ipams: &["azure-cns"],
        path: "",
        name: "azure-vnet.json",
        parse: vnet,
    },
    File {
        kind: StoreKind::AzureCns,
        ipams: &["azure-cns", "azure-ipam"],
        path: "azure-cns",
        name: "azure-endpoints.json",
        parse: endpoints,
    },
];

struct File {
    kind: StoreKind,
    ipams: &'static [&'static str],
    /// The folder below `/var/run`.
    path: &'static str,
    name: &'static str,
    parse: fn(&[u8]) -> Option<Vec<Allocation>>,
}

/// An allocation of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocation {
    /// `None`: it cannot be parsed.
    address: Option<IpAddr>,
    holder: Option<Holder>,
    pod: Option<Box<PodName>>,
}

/// The contents of a file.
#[derive(Clone, Debug)]
struct Contents {
    allocations: Vec<Allocation>,
    /// Nothing was written into it yet.
    is_blank: bool,
    /// When the file was written: wall clock, ns since the epoch.
    written: i64,
}

/// What is remembered of the last readings.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    files: Memo<Contents>,
    /// The network of pods, as last configured. The configuration may be missing for a while.
    network: Option<Network>,
    /// The allocations of the last reading, and when each came.
    came: BTreeMap<(IpAddr, Option<ContainerId>), (Timestamp, Allocation)>,
}

impl Remembered {
    pub(super) fn begin(&mut self, wall_ns: i64) {
        self.files.begin(wall_ns);
    }

    /// Forgets what rests on the wall clock, which was set.
    pub(super) fn clock_set(&mut self) {
        self.files = Memo::default();
    }
}

/// A file that exists.
struct Found {
    at: Timestamp,
    file: &'static File,
    run: &'static str,
    path: String,
    read: Result<Contents, ReadError>,
}

impl Found {
    /// Returns when something was last written into it. One that cannot be read may be the one in use.
    fn written(&self) -> i64 {
        match &self.read {
            Ok(contents) if contents.is_blank => i64::MIN,
            Ok(contents) => contents.written,
            Err(_) => i64::MAX,
        }
    }
}

pub(super) struct Azure;

impl Kind for Azure {
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        let memory = &mut memory.azure;
        // libcni takes the first one. multus takes its network of pods from the next.
        let networks = given.networks.iter().map(|it| &it.network);
        let mut of_pods = networks.filter(|it| !it.plugins.iter().any(|name| name.starts_with("multus")));
        if let Some(network) = of_pods.next() {
            memory.network = Some(network.clone());
        }
        let Some(Network { name, ipam: Some(ipam), .. }) = memory.network.clone() else { return };
        let files = FILES.iter().filter(|file| file.ipams.contains(&ipam.as_str()));
        // With azure-cns it is the file that is still written. The other one is blank, or an earlier setup
        // left it.
        let found = files.filter_map(|file| find(given, memory, file, list)).max_by_key(Found::written);
        let Some(Found { at, file, run, path, read }) = found else { return };
        let contents = list.take(&path, read);
        let (queue, is_queue_whole) = read_queue(given, list, run);
        let mut complete = contents.is_some() && is_queue_whole;
        let mut reservations = Vec::new();
        if let Some(contents) = contents {
            // Only azure-vnet drops an endpoint when it queues the release. azure-cns drops it when it has
            // handled the release.
            let keeps = file.kind == StoreKind::AzureVnet;
            let all = reservations_of(given, memory, contents, keeps, &queue, is_queue_whole);
            if all.iter().any(Option::is_none) {
                list.skip(&path, ReadError::Malformed);
                complete = false;
            }
            // An agent that starts does not know the address of an endpoint that was dropped before.
            let known: BTreeSet<_> = memory.came.keys().filter_map(|(_, id)| id.as_ref()).collect();
            complete &= !keeps || queue.keys().all(|id| known.contains(id));
            reservations = all.into_iter().flatten().collect();
        }
        let store = Store { kind: file.kind, path, network: Some(name), bound: Bound::Sandbox };
        list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
    }
}

/// Reads a file; `None` if it does not exist.
fn find(
    given: Given<'_>,
    memory: &mut Remembered,
    file: &'static File,
    list: &mut Listing<'_>,
) -> Option<Found> {
    for run in RUN {
        let at = list.now();
        let folder = format!("{run}/{}", file.path);
        let path = format!("{}/{}", folder.trim_end_matches('/'), file.name);
        let read = given.node.root.folder(&folder).and_then(|folder| {
            memory.files.of(&folder).read(file.name, FILE, |bytes, written| {
                let is_blank = matches!(bytes.trim_ascii(), b"" | b"{}");
                Some(Contents { allocations: (file.parse)(bytes)?, is_blank, written })
            })
        });
        if !matches!(read, Err(ReadError::Absent)) {
            return Some(Found { at, file, run, path, read });
        }
    }
    None
}

/// Returns the containers whose release waits, and since when; then whether all of them were read.
fn read_queue(given: Given<'_>, list: &mut Listing<'_>, run: &str) -> (BTreeMap<ContainerId, i64>, bool) {
    let mut queue = BTreeMap::new();
    let (folder, mut is_whole) = open_queue(given, list, &format!("{run}/{QUEUE}"));
    let Some((folder, entries)) = folder else { return (queue, is_whole) };
    for entry in entries {
        let Some(id) = ContainerId::parse(&entry.name) else {
            list.set_aside(folder.path().join(&entry.name), ReadError::Malformed);
            continue;
        };
        match folder.edition(&entry.name) {
            Ok(edition) => _ = queue.insert(id, edition.written_wall_ns()),
            // It was released since the folder was read.
            Err(ReadError::Absent) => {}
            Err(why) => {
                list.skip(folder.path().join(&entry.name), why);
                is_whole = false;
            }
        }
    }
    (queue, is_whole)
}

/// Returns the reservations of a file; `None` for each that has no valid address. azure-vnet drops an
/// endpoint from its file when it writes the release into the queue, so such an endpoint of the last reading
/// counts on if the file is azure-vnet's (`keeps`).
fn reservations_of(
    given: Given<'_>,
    memory: &mut Remembered,
    contents: Contents,
    keeps: bool,
    queue: &BTreeMap<ContainerId, i64>,
    is_queue_whole: bool,
) -> Vec<Option<Reservation>> {
    let mut came = BTreeMap::new();
    let mut unread = Vec::new();
    for allocation in contents.allocations {
        match allocation.address {
            Some(address) => {
                let key = (address, allocation.holder.as_ref().map(|holder| holder.container.clone()));
                let since = memory.came.get(&key).map(|(since, _)| *since);
                let since = since.unwrap_or_else(|| given.node.boot_time(contents.written));
                came.insert(key, (since, allocation));
            }
            None => unread.push(None),
        }
    }
    let addresses: BTreeSet<IpAddr> = came.keys().map(|(address, _)| *address).collect();
    for (key, kept) in &memory.came {
        let is_queued = key.1.as_ref().is_some_and(|id| !is_queue_whole || queue.contains_key(id));
        if keeps && is_queued && !addresses.contains(&key.0) {
            came.insert(key.clone(), kept.clone());
        }
    }
    memory.came = came;
    let all = memory.came.iter().map(|((address, container), (since, it))| {
        let queued = container.as_ref().and_then(|id| queue.get(id));
        Some(Reservation {
            address: *address,
            holder: it.holder.clone(),
            since: *since,
            in_words: false,
            pod: it.pod.clone(),
            state: queued.map_or(ReservationState::Held, |since| ReservationState::Queued {
                since: given.node.boot_time(*since),
            }),
        })
    });
    all.chain(unread).collect()
}

/// A map of Go, which is written as `null` if it was never made, as are values that are pointers.
type Map<T> = Option<BTreeMap<String, Option<T>>>;

fn entries<T>(map: Map<T>) -> impl Iterator<Item = (String, T)> {
    map.unwrap_or_default().into_iter().filter_map(|(key, value)| Some((key, value?)))
}

fn values<T>(map: Map<T>) -> impl Iterator<Item = T> {
    entries(map).map(|(_, value)| value)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Endpoints {
    endpoints: Map<CnsEndpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CnsEndpoint {
    #[serde(default)]
    pod_name: String,
    #[serde(default)]
    pod_namespace: String,
    #[serde(rename = "IfnameToIPMap")]
    interfaces: Map<CnsInterface>,
}

#[derive(Deserialize)]
struct CnsInterface {
    #[serde(rename = "IPv4")]
    v4: Option<Vec<Address>>,
    #[serde(rename = "IPv6")]
    v6: Option<Vec<Address>>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "IP")]
    ip: String,
}

fn endpoints(bytes: &[u8]) -> Option<Vec<Allocation>> {
    let file: Endpoints = serde_json::from_slice(bytes).ok()?;
    let mut found = Vec::new();
    for (container, endpoint) in entries(file.endpoints) {
        let pod = pod(&endpoint.pod_namespace, &endpoint.pod_name);
        for (ifname, interface) in entries(endpoint.interfaces) {
            let addresses = interface.v4.into_iter().chain(interface.v6).flatten();
            found.extend(addresses.map(|address| Allocation {
                address: address.ip.parse().ok(),
                holder: holder(&container, &ifname),
                pod: pod.clone(),
            }));
        }
    }
    Some(found)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Vnet {
    network: Option<VnetNetworks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VnetNetworks {
    external_interfaces: Map<VnetInterface>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VnetInterface {
    networks: Map<VnetNetwork>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VnetNetwork {
    endpoints: Map<VnetEndpoint>,
}

#[derive(Deserialize)]
struct VnetEndpoint {
    #[serde(rename = "ContainerID", default)]
    container: String,
    #[serde(rename = "IfName", default)]
    ifname: String,
    #[serde(rename = "IPAddresses")]
    addresses: Option<Vec<Address>>,
    #[serde(rename = "PODName", default)]
    pod: String,
    #[serde(rename = "PODNameSpace", default)]
    namespace: String,
}

fn vnet(bytes: &[u8]) -> Option<Vec<Allocation>> {
    // Where azure-cns keeps the allocations, the kubelet makes this file empty for it, and azure-cns writes
    // `{}`.
    if bytes.trim_ascii().is_empty() {
        return Some(Vec::new());
    }
    let file: Vnet = serde_json::from_slice(bytes).ok()?;
    let interfaces = values(file.network.and_then(|it| it.external_interfaces));
    let networks = interfaces.flat_map(|it| values(it.networks));
    let mut found = Vec::new();
    for endpoint in networks.flat_map(|it| values(it.endpoints)) {
        for address in endpoint.addresses.unwrap_or_default() {
            found.push(Allocation {
                address: address.ip.parse().ok(),
                holder: holder(&endpoint.container, &endpoint.ifname),
                pod: pod(&endpoint.namespace, &endpoint.pod),
            });
        }
    }
    Some(found)
}

#[derive(Deserialize)]
struct Ipam {
    #[serde(rename = "IPAM")]
    ipam: IpamSpaces,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IpamSpaces {
    address_spaces: Map<IpamSpace>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IpamSpace {
    pools: Map<IpamPool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IpamPool {
    addresses: Map<IpamAddress>,
}

#[derive(Deserialize)]
struct IpamAddress {
    #[serde(rename = "ID", default)]
    container: String,
    #[serde(rename = "Addr")]
    address: String,
    #[serde(rename = "InUse")]
    is_in_use: bool,
}

fn ipam(bytes: &[u8]) -> Option<Vec<Allocation>> {
    let file: Ipam = serde_json::from_slice(bytes).ok()?;
    let pools = values(file.ipam.address_spaces).flat_map(|it| values(it.pools));
    let all = pools.flat_map(|it| values(it.addresses));
    let in_use = all.filter(|it| it.is_in_use).map(|it| Allocation {
        address: it.address.parse().ok(),
        holder: holder(&it.container, ""),
        pod: None,
    });
    Some(in_use.collect())
}

#[cfg(test)]
mod tests;
