//! The records in a checkpoint.

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::table::{
        ipam_store::IpamStore,
        record::{Records, Unread},
    },
    model::{
        fact::{NetworksRead, ProgramFound, RuntimeRead, RuntimeSandbox, StoreAnswer, StoreRead},
        id::ContainerId,
        time::Timestamp,
    },
};

/// One record in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    Store(StoreRead),
    /// Whether the store of this path can be asked.
    Link {
        path: String,
        answer: StoreAnswer,
    },
    Runtime(RuntimeRead),
    Networks(NetworksRead),
    /// A file of libcni's cache that could not be read, and since when.
    Unread {
        path: String,
        since: Timestamp,
    },
    /// A sandbox that has been on record since this time.
    KnownSince(ContainerId),
    /// libcni's cache was last found unchanged then.
    CacheRead,
    Kubelet(bool),
    Program(ProgramFound),
    /// The path of a plugin whose version was last asked for then.
    PluginAsked(String),
    Asked,
    /// Since then no network's configuration could be decoded.
    Unconfigured,
    /// Since then the runtime can make no network.
    Unready,
    /// A network's configuration could be decoded again then.
    Reconfigured,
    /// A sandbox's network was first made then without the plugin `loopback`.
    NoLoopback,
    /// `CNI_PATH` of the runtime's last call for a pod.
    CniPath(String),
    /// Since then no runtime's records were found.
    WithoutRuntimes,
}

impl Records {
    pub(crate) fn dump(&self) -> impl Iterator<Item = (Timestamp, Record)> + '_ {
        let Self {
            stores,
            links,
            runtimes,
            // It follows from the runtimes.
            on_record: _,
            cache_read_at,
            networks,
            unconfigured_since,
            unready_since,
            reconfigured_at,
            no_loopback_since,
            cni_path,
            without_runtimes_since,
            kubelet_expected,
            unread,
            known_since,
            programs,
            plugins_asked,
            asked_at,
            // It only saves a search.
            is_absence_noted: _,
        } = self;
        let stores = stores.values().map(|(at, read)| (*at, Record::Store(read.to_reading())));
        let links = links.iter().map(|(path, answer)| {
            let (path, answer) = (path.clone(), answer.clone());
            (Timestamp::ZERO, Record::Link { path, answer })
        });
        let runtimes = runtimes.iter().map(|(place, row)| {
            let sandboxes = row.sandboxes.iter();
            let sandboxes = sandboxes.map(|(id, pod)| RuntimeSandbox { id: id.clone(), pod: pod.clone() });
            let read = RuntimeRead {
                place: place.clone(),
                kind: row.kind,
                sandboxes: sandboxes.collect(),
                complete: row.complete,
                unread: row.unread,
            };
            (row.read_at, Record::Runtime(read))
        });
        let networks = networks.iter().map(|(at, read)| (*at, Record::Networks(read.clone())));
        let unread = unread.iter();
        let unread =
            unread.map(|(path, it)| (it.read_at, Record::Unread { path: path.clone(), since: it.since }));
        let known = known_since.iter().map(|(id, since)| (*since, Record::KnownSince(id.clone())));
        let kubelet = (Timestamp::ZERO, Record::Kubelet(*kubelet_expected));
        let programs = programs.iter().map(|(path, version)| {
            let it = ProgramFound { path: path.clone(), version: version.clone() };
            (Timestamp::ZERO, Record::Program(it))
        });
        let plugins = plugins_asked.iter();
        let plugins = plugins.map(|(path, at)| (*at, Record::PluginAsked(path.clone())));
        let times = [
            (*asked_at, Record::Asked),
            (Some(*cache_read_at).filter(|at| *at > Timestamp::ZERO), Record::CacheRead),
            (*unconfigured_since, Record::Unconfigured),
            (*unready_since, Record::Unready),
            (*reconfigured_at, Record::Reconfigured),
            (*no_loopback_since, Record::NoLoopback),
            (*without_runtimes_since, Record::WithoutRuntimes),
        ];
        let times = times.into_iter().filter_map(|(at, record)| Some((at?, record)));
        let cni_path = cni_path.iter().map(|path| (Timestamp::ZERO, Record::CniPath(path.clone())));
        let read =
            stores.chain(links).chain(runtimes).chain(networks).chain(unread).chain(known).chain(cni_path);
        read.chain([kubelet]).chain(programs).chain(plugins).chain(times)
    }

    pub(in crate::engine::world) fn restore(&mut self, at: Timestamp, record: Record) {
        match record {
            Record::Store(read) => {
                self.stores.insert(read.store.path.clone(), (at, IpamStore::of(read)));
            }
            Record::Link { path, answer } => {
                self.links.insert(path, answer);
            }
            Record::Runtime(read) => self.add_runtime(at, read),
            Record::Networks(read) => self.networks = Some((at, read)),
            Record::Unread { path, since } => {
                self.unread.insert(path, Unread { since, read_at: at });
            }
            Record::KnownSince(id) => {
                self.known_since.insert(id, at);
            }
            Record::Kubelet(expected) => self.kubelet_expected = expected,
            Record::Program(it) => {
                self.programs.insert(it.path, it.version);
            }
            Record::PluginAsked(path) => {
                self.plugins_asked.insert(path, at);
            }
            Record::Asked => self.asked_at = Some(at),
            Record::CacheRead => self.cache_read_at = at,
            Record::Unconfigured => self.unconfigured_since = Some(at),
            Record::Unready => self.unready_since = Some(at),
            Record::Reconfigured => self.reconfigured_at = Some(at),
            Record::NoLoopback => self.no_loopback_since = Some(at),
            Record::CniPath(path) => self.cni_path = Some(path),
            Record::WithoutRuntimes => self.without_runtimes_since = Some(at),
        }
    }
}
