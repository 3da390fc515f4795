//! Asks UCloud's ipamd for its records, at its socket. ipamd keeps them in a file that it has locked, which
//! is never opened. A record names the pod and the sandbox, but no interface.
//!
//! The times of a record are those of the address: when it was fetched from the VPC, and when a pod before
//! gave it back. The sandbox got it then or later.
//!
//! A static address (`VpcIpClaim`) stays with the pod's name, and no record says so. Only pods of a
//! StatefulSet can have one, and it is the only address that the pod gets. The address of an interface that
//! the pod has for itself (UNI) is freed by ipamd with the interface.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use bytes::Bytes;
use prost::Message;

use super::{
    super::{Listing, Node},
    Given, Kind, Memory, holder,
};
use crate::{
    model::{
        fact::{Bound, Fact, PodName, Reservation, ReservationState, Store, StoreKind, StoreRead},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::{
        cri::{self, Call, ListError, name::named},
        host::{HostRoot, ReadError},
    },
};

const PLUGIN: &str = "cnivpc";
const FOLDER: &str = "/run";
const NAME: &str = "cni-vpc-ipamd.sock";
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Further records are left out.
const MAX_RECORDS: usize = 1 << 13;
/// How long an ipamd that gave no answer is not asked again: all other reading waits for the answer.
const PAUSE: Duration = Duration::from_secs(60);

/// What is remembered of the last readings.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// The allocations of the last answer, and when each came; `None` before the first answer.
    came: Option<BTreeMap<(IpAddr, ContainerId), Timestamp>>,
    asked_again_at: Timestamp,
}

pub(super) struct Ipamd;

impl Kind for Ipamd {
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        let networks = given.networks.iter().map(|it| &it.network);
        let mut own = networks.filter(|network| network.plugins.iter().any(|plugin| plugin == PLUGIN));
        let Some(network) = own.next() else { return };
        let network = own.next().is_none().then(|| network.name.clone());
        let memory = &mut memory.ucloud;
        let at = list.now();
        let path = format!("{FOLDER}/{NAME}");
        let read = match ask(given.node.root, &mut memory.asked_again_at, at).and_then(parse) {
            // Without ipamd the plugin keeps its records itself.
            Err(ReadError::Absent) if memory.came.is_none() => return,
            // ipamd removes its socket when it ends.
            Err(ReadError::Absent) => Err(ReadError::Unanswered),
            read => read,
        };
        let mut reservations = Vec::new();
        let mut complete = false;
        match read {
            Ok((records, fault)) => {
                complete = fault.is_none();
                if let Some(why) = fault {
                    list.skip(&path, why);
                }
                reservations = reservations_of(given.node, memory, records, at);
            }
            Err(why) => list.skip(&path, why),
        }
        let store = Store { kind: StoreKind::UcloudIpamd, path, network, bound: Bound::Sandbox };
        list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
    }
}

fn ask(root: &HostRoot, asked_again_at: &mut Timestamp, at: Timestamp) -> Result<Bytes, ReadError> {
    let folder = root.folder(FOLDER)?;
    let socket = folder.socket(NAME)?;
    // The folder is root's.
    if !folder.owns(NAME)? {
        return Err(ReadError::NotPlain);
    }
    if at < *asked_again_at {
        return Err(ReadError::Unanswered);
    }
    cri::ask(&socket, Call::ListPodNetworkRecord, MAX_ANSWER_BYTES).map_err(|refusal| match refusal {
        ListError::Nobody => ReadError::Unanswered,
        ListError::Unreachable(why) => ReadError::Unreadable(why),
        ListError::OtherService => ReadError::Malformed,
        ListError::Unanswered => {
            *asked_again_at = at + PAUSE;
            ReadError::Unanswered
        }
    })
}

/// `ListPodNetworkRecordResponse` of `rpc/ipamd.proto`. Its records are parsed one by one, so that one that
/// cannot be parsed spoils no other.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    records: Vec<Bytes>,
}

/// `PodNetwork`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct Network {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    uid: String,
    #[prost(string, tag = "4")]
    sandbox: String,
    #[prost(string, tag = "6")]
    address: String,
    #[prost(bool, tag = "12")]
    is_own_interface: bool,
    /// Seconds since the epoch.
    #[prost(int64, tag = "15")]
    created: i64,
    /// Seconds since the epoch.
    #[prost(int64, tag = "16")]
    recycled: i64,
}

/// A record with an address and a sandbox.
#[derive(Debug)]
struct Record {
    address: IpAddr,
    sandbox: ContainerId,
    network: Network,
}

/// Returns the records, and why others are missing.
fn parse(answer: Bytes) -> Result<(Vec<Record>, Option<ReadError>), ReadError> {
    let Answer { code, records } = Answer::decode(answer).map_err(|_error| ReadError::Malformed)?;
    // ipamd could not read its file.
    if code != 0 {
        return Err(ReadError::Unanswered);
    }
    let mut fault = (records.len() > MAX_RECORDS).then_some(ReadError::TooMany(MAX_RECORDS));
    let mut all = Vec::new();
    for bytes in records.into_iter().take(MAX_RECORDS) {
        match Network::decode(bytes) {
            // It holds nothing.
            Ok(network) if network.address.is_empty() => {}
            Ok(network) => match (network.address.parse(), ContainerId::parse(&network.sandbox)) {
                (Ok(address), Some(sandbox)) => all.push(Record { address, sandbox, network }),
                (Err(_), _) | (_, None) => fault = Some(ReadError::Malformed),
            },
            Err(_) => fault = Some(ReadError::Malformed),
        }
    }
    Ok((all, fault))
}

fn reservations_of(
    node: Node<'_>,
    memory: &mut Remembered,
    records: Vec<Record>,
    at: Timestamp,
) -> Vec<Reservation> {
    let mut addresses: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
    for record in &records {
        addresses.entry(record.pod_key()).or_default().insert(record.address);
    }
    let has_several: Vec<bool> =
        records.iter().map(|it| addresses.get(&it.pod_key()).is_some_and(|all| all.len() > 1)).collect();
    let before = memory.came.take();
    let came = memory.came.insert(BTreeMap::new());
    let mut reservations = Vec::new();
    for (record, has_several) in records.into_iter().zip(has_several) {
        let is_kept = record.network.is_own_interface || !has_several && record.may_be_of_stateful_set();
        let Record { address, sandbox, network } = record;
        let Network { pod, namespace, uid, created, recycled, .. } = network;
        let key = (address, sandbox);
        let since = match &before {
            None => node.boot_time(created.max(recycled).saturating_mul(1_000_000_000)),
            Some(before) => before.get(&key).copied().unwrap_or(at),
        };
        let pod = PodName { namespace: Some(namespace), name: Some(pod), uid: PodUid::parse(&uid) };
        reservations.push(Reservation {
            address,
            holder: if is_kept { None } else { holder(key.1.as_str(), "") },
            since,
            in_words: is_kept,
            pod: named(pod).map(Box::new),
            state: ReservationState::Held,
        });
        came.insert(key, since);
    }
    reservations
}

impl Record {
    fn pod_key(&self) -> (&str, &str, &str) {
        (&self.network.namespace, &self.network.pod, &self.network.uid)
    }

    fn may_be_of_stateful_set(&self) -> bool {
        let ordinal = self.network.pod.rsplit_once('-').map(|(_, ordinal)| ordinal);
        ordinal.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests;
