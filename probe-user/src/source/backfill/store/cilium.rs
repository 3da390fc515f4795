//! Reads the files in which Cilium's agent keeps its endpoints, and the queue of releases that wait for it.
//!
//! Each endpoint has a folder, named by its number. The agent makes another folder (`_next`) for an endpoint
//! that it regenerates, and puts it in the place of the old one. So a file's time says nothing, and an
//! endpoint is as old as the file in which it was first seen. Older agents rename the old folder (`_stale`)
//! first. One that was killed then leaves it behind, no agent reads it again, and the address is free.
//!
//! An endpoint without a container is the node's, Cilium's own or an ingress'.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::Deserialize;

use super::{
    super::{Listing, network::Configured},
    Given, Kind, Memory, RUN, holder, open_queue, pod,
};
use crate::{
    model::{
        fact::{Bound, Fact, Holder, PodName, Reservation, ReservationState, Store, StoreKind, StoreRead},
        id::ContainerId,
        time::Timestamp,
    },
    source::host::{ENTRIES, Entries, FILE, Folder, ReadError, memo::Memo},
};

const PLUGIN: &str = "cilium-cni";
const STATE: &str = "cilium/state";
const QUEUE: &str = "cilium/deleteQueue";
const NAME: &str = "ep_config.json";
/// Older agents keep the endpoint in a comment of this file alone.
const HEADER: &str = "ep_config.h";
/// The end of the name of an endpoint's folder while an older agent puts a new one in its place.
const STALE: &str = "_stale";
const QUEUED: &str = ".delete";
/// How much of a release in the queue is read, bytes.
const MAX_RELEASE: usize = 4096;

/// What is remembered of the last readings.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    endpoints: Memo<Endpoint>,
    queue: Memo<Release>,
    /// The allocations of the last reading, and when each came.
    came: BTreeMap<Key, Timestamp>,
}

/// An allocation: the address and the container.
type Key = (IpAddr, Option<ContainerId>);

impl Remembered {
    pub(super) fn begin(&mut self, wall_ns: i64) {
        self.endpoints.begin(wall_ns);
        self.queue.begin(wall_ns);
    }

    /// Forgets what rests on the wall clock, which was set.
    pub(super) fn clock_set(&mut self) {
        (self.endpoints, self.queue) = (Memo::default(), Memo::default());
    }
}

/// What counts of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Endpoint {
    /// The valid addresses that Cilium itself gave to a container.
    addresses: Vec<IpAddr>,
    holder: Option<Holder>,
    pod: Option<Box<PodName>>,
    /// Another plugin gave it its addresses.
    is_of_other: bool,
    /// An address of it cannot be parsed.
    is_damaged: bool,
    /// When the file was written: wall clock, ns since the epoch.
    written: i64,
}

/// A release in the queue.
#[derive(Clone, Debug)]
struct Release {
    container: ContainerId,
    written: i64,
}

pub(super) struct Cilium;

impl Kind for Cilium {
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        if is_of_others(given.networks) {
            return;
        }
        for run in RUN {
            let at = list.now();
            let path = format!("{run}/{STATE}");
            let folder = given.node.root.folder(&path).and_then(|folder| Ok((folder.entries()?, folder)));
            let mut reservations = Vec::new();
            let mut complete = false;
            match folder {
                Err(ReadError::Absent) => continue,
                Err(why) => list.skip(&path, why),
                Ok((entries, folder)) => {
                    let (queue, is_queue_whole) = read_queue(given, &mut memory.cilium, list, run);
                    let (endpoints, is_whole) = read_endpoints(&mut memory.cilium, list, &folder, entries);
                    complete = is_queue_whole && is_whole;
                    let (others, own): (Vec<_>, Vec<_>) =
                        endpoints.into_iter().partition(|it| it.is_of_other);
                    // The plugin that gave out the addresses keeps them.
                    if complete && own.iter().all(|it| it.addresses.is_empty()) && !others.is_empty() {
                        return;
                    }
                    reservations = reservations_of(given, &mut memory.cilium, own, &queue);
                }
            }
            let network = network(given.networks);
            let store = Store { kind: StoreKind::Cilium, path, network, bound: Bound::Sandbox };
            list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
            return;
        }
    }
}

/// Returns the endpoints, and whether all of them were read.
fn read_endpoints(
    memory: &mut Remembered,
    list: &mut Listing<'_>,
    folder: &Folder,
    entries: Entries,
) -> (Vec<Endpoint>, bool) {
    // A name that is not UTF-8 is no number.
    let Entries { entries, not_utf8: _, left_out } = entries;
    let mut numbers = BTreeSet::new();
    for entry in &entries {
        let name = entry.name.strip_suffix(STALE).unwrap_or(&entry.name);
        if entry.directory && name.parse::<u16>().is_ok() {
            numbers.insert(name.to_owned());
        }
    }
    let mut is_whole = left_out == 0;
    if !is_whole {
        list.skip(folder.path(), ReadError::TooMany(ENTRIES));
    }
    let mut endpoints = Vec::new();
    for number in numbers {
        match read_endpoint(memory, folder, &number) {
            Ok(endpoint) => {
                if endpoint.is_damaged {
                    list.skip(folder.path().join(&number).join(NAME), ReadError::Malformed);
                    is_whole = false;
                }
                endpoints.push(endpoint);
            }
            // The endpoint was deleted since the folder was read, or is being made.
            Err(ReadError::Absent) => {}
            Err(why) => {
                list.skip(folder.path().join(&number).join(NAME), why);
                is_whole = false;
            }
        }
    }
    (endpoints, is_whole)
}

/// Reads an endpoint. While its folder is replaced, it may be missing for a moment.
fn read_endpoint(memory: &mut Remembered, state: &Folder, number: &str) -> Result<Endpoint, ReadError> {
    for _attempt in 0..2 {
        let folder = match state.folder(number) {
            Err(ReadError::Absent) => continue,
            folder => folder?,
        };
        match memory.endpoints.of(&folder).read(NAME, FILE, parse) {
            Err(ReadError::Absent) if folder.edition(HEADER).is_ok() && folder.edition(NAME).is_err() => {
                return Err(ReadError::Malformed);
            }
            Err(ReadError::Absent) => {}
            read => return read,
        }
    }
    Err(ReadError::Absent)
}

/// Returns the containers whose release waits, and since when; then whether all of them were read.
fn read_queue(
    given: Given<'_>,
    memory: &mut Remembered,
    list: &mut Listing<'_>,
    run: &str,
) -> (BTreeMap<ContainerId, i64>, bool) {
    let mut queue = BTreeMap::new();
    let (folder, mut is_whole) = open_queue(given, list, &format!("{run}/{QUEUE}"));
    let Some((folder, entries)) = folder else { return (queue, is_whole) };
    let mut files = memory.queue.of(&folder);
    for entry in entries.iter().filter(|entry| entry.name.ends_with(QUEUED)) {
        let read = files.read(&entry.name, MAX_RELEASE, |bytes, written| {
            Some(Release { container: released(bytes)?, written })
        });
        match read {
            Ok(Release { container, written }) => _ = queue.insert(container, written),
            // The agent has handled it since the folder was read.
            Err(ReadError::Absent) => {}
            // It names no container, so the agent frees nothing either.
            Err(why @ ReadError::Malformed) => list.set_aside(folder.path().join(&entry.name), why),
            Err(why) => {
                list.skip(folder.path().join(&entry.name), why);
                is_whole = false;
            }
        }
    }
    (queue, is_whole)
}

fn reservations_of(
    given: Given<'_>,
    memory: &mut Remembered,
    endpoints: Vec<Endpoint>,
    queue: &BTreeMap<ContainerId, i64>,
) -> Vec<Reservation> {
    let mut came = BTreeMap::new();
    let mut reservations = Vec::new();
    for Endpoint { addresses, holder, pod, written, .. } in endpoints {
        let container = holder.as_ref().map(|holder| &holder.container);
        let queued = container.and_then(|id| queue.get(id));
        for address in addresses {
            let key = (address, container.cloned());
            let since = memory.came.get(&key).copied();
            let since = since.unwrap_or_else(|| given.node.boot_time(written));
            came.insert(key, since);
            reservations.push(Reservation {
                address,
                holder: holder.clone(),
                since,
                in_words: false,
                pod: pod.clone(),
                state: queued.map_or(ReservationState::Held, |since| ReservationState::Queued {
                    since: given.node.boot_time(*since),
                }),
            });
        }
    }
    memory.came = came;
    reservations
}

/// The plugins of the networks that use Cilium, and whether Cilium's agent gives out the addresses. It does
/// not where its plugin comes after another, or calls another plugin for them.
fn of_cilium(networks: &[Configured]) -> impl Iterator<Item = (&str, bool)> {
    let all = networks.iter().map(|it| &it.network);
    all.filter(|network| network.plugins.iter().any(|plugin| plugin == PLUGIN)).map(|network| {
        let is_first =
            !network.delegates.is_empty() || network.plugins.first().is_some_and(|it| it == PLUGIN);
        (&*network.name, is_first && network.ipam.as_ref().is_none_or(String::is_empty))
    })
}

/// Whether other plugins give out the addresses of pods: Cilium's comes after them, or is no longer
/// configured. Then its files may still be there until the next boot.
fn is_of_others(networks: &[Configured]) -> bool {
    let mut all = of_cilium(networks).peekable();
    if all.peek().is_some() {
        return all.all(|(_, is_own)| !is_own);
    }
    // multus may have its network of pods at the API server.
    let mut plugins = networks.iter().flat_map(|it| &it.network.plugins);
    !networks.is_empty() && !plugins.any(|name| name.starts_with("multus"))
}

/// Returns the only configured network whose addresses Cilium gives out.
fn network(networks: &[Configured]) -> Option<String> {
    let mut own = of_cilium(networks).filter(|(_, is_own)| *is_own);
    let (first, _) = own.next()?;
    own.next().is_none().then(|| first.to_owned())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(rename = "dockerID", default)]
    container: String,
    #[serde(rename = "ContainerIfName", default)]
    ifname: String,
    #[serde(rename = "IPv4", default)]
    v4: Option<String>,
    #[serde(rename = "IPv6", default)]
    v6: Option<String>,
    #[serde(rename = "K8sPodName", default)]
    pod: String,
    #[serde(rename = "K8sNamespace", default)]
    namespace: String,
    datapath_configuration: Option<Datapath>,
}

#[derive(Deserialize)]
struct Datapath {
    #[serde(rename = "external-ipam", default)]
    is_external: bool,
}

fn parse(bytes: &[u8], written: i64) -> Option<Endpoint> {
    let file: Config = serde_json::from_slice(bytes).ok()?;
    if file.container.is_empty() {
        return Some(Endpoint { written, ..Endpoint::default() });
    }
    let is_of_other = file.datapath_configuration.is_some_and(|it| it.is_external);
    let mut addresses = Vec::new();
    let mut is_damaged = false;
    for text in file.v4.into_iter().chain(file.v6).filter(|text| !text.is_empty()) {
        match text.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => is_damaged = true,
        }
    }
    Some(Endpoint {
        addresses,
        holder: holder(&file.container, &file.ifname),
        pod: pod(&file.namespace, &file.pod),
        is_of_other,
        is_damaged,
        written,
    })
}

#[derive(Deserialize)]
struct Request {
    #[serde(rename = "container-id")]
    container: String,
}

/// Returns the container of a release. Older plugins write the name of an endpoint in place of JSON.
fn released(bytes: &[u8]) -> Option<ContainerId> {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        return ContainerId::parse(&request.container);
    }
    let (prefix, rest) = str::from_utf8(bytes).ok()?.trim().split_once(':')?;
    let id = match prefix {
        "container-id" => rest,
        "cni-attachment-id" => rest.split(':').next()?,
        _ => return None,
    };
    ContainerId::parse(id)
}

#[cfg(test)]
mod tests;
