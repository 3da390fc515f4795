//! The records outside of the kernel: IPAM stores, the runtimes' sandboxes, the networks' configuration.
//!
//! **Invariant:** a record does not prove that a thing lives. Only a complete reading proves that no record
//! names it.

pub(crate) mod dump;
pub(crate) mod pods;

pub(crate) use dump::Record;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pods::OnRecord;
use probe_common::runtime::{self, RUNTIMES};

use crate::{
    engine::world::table::{
        attachment::{Attachment, Lease},
        ipam_store::IpamStore,
        process::Process,
    },
    model::{
        fact::{
            LOOPBACK, Network, NetworkFault, NetworkLoading, NetworksRead, NodeFolders, PodName,
            ProgramFound, RuntimeChanged, RuntimeKind, RuntimeRead, StoreAnswer,
        },
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// The records as they were last read.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) stores: BTreeMap<String, (Timestamp, IpamStore)>,
    /// The stores that are asked about single addresses, by path, and whether they can be.
    pub(crate) links: BTreeMap<String, StoreAnswer>,
    pub(crate) runtimes: BTreeMap<String, Runtime>,
    /// What all runtimes have on record together.
    pub(crate) on_record: OnRecord,
    /// When libcni's cache was last found unchanged, except for reported changes.
    pub(crate) cache_read_at: Timestamp,
    pub(crate) networks: Option<(Timestamp, NetworksRead)>,
    /// Since when each reading of the networks' configuration has found none that can be decoded.
    pub(crate) unconfigured_since: Option<Timestamp>,
    /// Since when each reading of the configuration that shows how the runtime loads it has shown that it can
    /// make no network, while an agent read it.
    pub(crate) unready_since: Option<Timestamp>,
    /// When a reading of the networks' configuration last found one after others that had found none.
    pub(crate) reconfigured_at: Option<Timestamp>,
    /// When the runtime first made a sandbox with a network and without a call of the plugin `loopback`.
    pub(crate) no_loopback_since: Option<Timestamp>,
    /// `CNI_PATH` of the runtime's last call for a pod.
    pub(crate) cni_path: Option<String>,
    /// Since when each reading of the networks' configuration has come with no runtime's records.
    pub(crate) without_runtimes_since: Option<Timestamp>,
    pub(crate) kubelet_expected: bool,
    /// The files of libcni's cache that could not be read, by path.
    pub(crate) unread: BTreeMap<String, Unread>,
    /// Since when each sandbox has been on record.
    pub(crate) known_since: BTreeMap<ContainerId, Timestamp>,
    /// The versions of executables by path. None: the executable does not show its version.
    pub(crate) programs: BTreeMap<String, Option<String>>,
    /// When the engine last asked for the version of each plugin that set up a sandbox.
    pub(crate) plugins_asked: BTreeMap<String, Timestamp>,
    /// When the engine last asked for a reading of the records.
    pub(crate) asked_at: Option<Timestamp>,
    /// Each sandbox that existed at the last reading has a note of whether a runtime had it on record.
    pub(crate) is_absence_noted: bool,
}

/// The sandboxes of a runtime as they were last read.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) kind: Option<RuntimeKind>,
    pub(crate) read_at: Timestamp,
    pub(crate) complete: bool,
    /// How many records of its sandboxes could not be read.
    pub(crate) unread: u64,
    pub(crate) sandboxes: BTreeMap<ContainerId, Option<PodName>>,
}

/// The sandboxes for which the records must be read again: no other sign shows that a runtime forgot a
/// sandbox or that a store was repaired.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The sandboxes that have no process yet.
    pub(crate) making: BTreeSet<ContainerId>,
    /// The stopped sandboxes for which a file still holds an address.
    pub(crate) holding: BTreeSet<ContainerId>,
}

/// A file that exists and could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) since: Timestamp,
    /// When it was last found to be unreadable.
    pub(crate) read_at: Timestamp,
}

/// Whether a runtime has a sandbox on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasRecord {
    Yes,
    /// All runtimes' records were read, the oldest at this time, and none has the sandbox.
    No {
        at: Timestamp,
    },
    /// The records of a runtime were not read, or not completely.
    Unknown,
}

/// At most this many unreadable files are remembered. A power cut damages a few.
const UNREAD: usize = 1024;

/// The kubelet gives up on a sandbox that is not made within this time: twice its `runtimeRequestTimeout` of
/// 2 minutes.
pub(crate) const MAKING: Duration = Duration::from_secs(4 * 60);

/// Returns folders without the slash at their end.
fn trimmed(folders: &[String]) -> BTreeSet<&str> {
    folders.iter().map(|folder| folder.trim_end_matches('/')).collect()
}

/// Whether a place of records is a socket on which a runtime answered. The other places are folders.
fn is_socket(place: &str) -> bool {
    place.ends_with(".sock")
}

impl HasRecord {
    /// Absence from the records proves nothing while some records are unread.
    #[must_use]
    pub(crate) fn unless(self, unread: bool) -> Self {
        match self {
            Self::No { .. } if unread => Self::Unknown,
            Self::Yes | Self::No { .. } | Self::Unknown => self,
        }
    }
}

impl Records {
    /// Notes that no agent read the files until then. What has lasted may have ended and begun again.
    pub(in crate::engine::world) fn unwatched_until(&mut self, at: Timestamp) {
        self.unready_since = self.unready_since.and(Some(at));
    }

    /// The sockets of the runtimes that have this sandbox on record: one at most, since ids are never used
    /// twice.
    pub(crate) fn sockets_with<'a>(&'a self, sandbox: &'a ContainerId) -> impl Iterator<Item = &'a String> {
        self.runtimes
            .iter()
            .filter(move |(place, row)| is_socket(place) && row.sandboxes.contains_key(sandbox))
            .map(|(place, _)| place)
    }

    /// The sockets at which to ask about these sandboxes: those of their runtimes, or of all runtimes if one
    /// of the sandboxes is on no record, since any of them may have made it.
    pub(crate) fn sockets_of(&self, sandboxes: &[ContainerId]) -> Vec<String> {
        if sandboxes.is_empty() || !sandboxes.iter().all(|id| self.sockets_with(id).next().is_some()) {
            return self.runtimes.keys().filter(|place| is_socket(place)).cloned().collect();
        }
        let own: BTreeSet<&String> = sandboxes.iter().flat_map(|id| self.sockets_with(id)).collect();
        own.into_iter().cloned().collect()
    }

    /// Whether a runtime has this sandbox on record.
    pub(crate) fn has_record(&self, id: &ContainerId) -> HasRecord {
        if self.is_on_record(id) { HasRecord::Yes } else { self.absent() }
    }

    /// Whether the latest reading of any runtime's records has this sandbox.
    pub(crate) fn is_on_record(&self, id: &ContainerId) -> bool {
        self.on_record.contains(id)
    }

    /// The answer for a sandbox that no runtime has on record.
    pub(crate) fn absent(&self) -> HasRecord {
        match self.runtimes.values().map(|runtime| runtime.read_at).min() {
            Some(at) if self.runtimes.values().all(|runtime| runtime.complete) => HasRecord::No { at },
            Some(_) | None => HasRecord::Unknown,
        }
    }

    pub(crate) fn of_kind(&self, kind: RuntimeKind) -> impl Iterator<Item = &Runtime> {
        self.runtimes.values().filter(move |row| row.kind == Some(kind))
    }

    /// Whether a runtime is not used: all its records were read and it has no sandbox on record, while
    /// another runtime has some.
    pub(crate) fn is_unused(&self, kind: RuntimeKind) -> bool {
        self.of_kind(kind).next().is_some()
            && self.of_kind(kind).all(|row| row.complete && row.sandboxes.is_empty())
            && self.runtimes.values().any(|row| !row.sandboxes.is_empty())
    }

    pub(crate) fn networks(&self) -> &[Network] {
        self.networks.as_ref().map_or(&[], |(_, read)| &read.networks)
    }

    /// The folders in which the runtime looks for the executables of plugins, as it said with its last call;
    /// if it has called none since it started, as it is configured.
    pub(crate) fn plugin_folders(&self) -> Vec<String> {
        let Some(path) = &self.cni_path else {
            return self.networks.as_ref().map(|(_, read)| read.folders.plugins.clone()).unwrap_or_default();
        };
        path.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
    }

    /// How the runtime that serves pods loads its network, if that is known, and why it cannot make one. What
    /// it said with its last call counts more than its configuration, which may have changed since its start.
    pub(crate) fn loading(&self) -> Option<(&NetworkLoading, Option<&NetworkFault>)> {
        let (_, read) = self.networks.as_ref()?;
        let loading = read.loading.as_ref()?;
        let missing = loading.fault.as_ref().and_then(|it| it.plugin.as_deref());
        // A runtime that makes networks without that plugin does not need it.
        if missing == Some(LOOPBACK) && self.no_loopback_since.is_some() {
            return Some((loading, None));
        }
        if missing.is_some() && trimmed(&self.plugin_folders()) != trimmed(&read.folders.plugins) {
            return Some((loading, None));
        }
        Some((loading, loading.fault.as_ref()))
    }

    /// The folders of the node, as far as they are known.
    pub(crate) fn folders(&self) -> NodeFolders {
        let read = self.networks.as_ref().map(|(_, read)| read.folders.clone());
        NodeFolders { plugins: self.plugin_folders(), ..read.unwrap_or_default() }
    }

    /// The network whose chain has this plugin, if there is exactly one.
    pub(crate) fn network_of(&self, plugin: &str) -> Option<&Network> {
        let mut all = self.networks().iter().filter(|network| network.plugins.iter().any(|it| it == plugin));
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    pub(in crate::engine::world) fn add_runtime(&mut self, at: Timestamp, read: RuntimeRead) {
        let sandboxes = read.sandboxes.iter().map(|it| (it.id.clone(), it.pod.clone())).collect();
        let RuntimeRead { place, kind, sandboxes: _, complete, unread } = read;
        let row = Runtime { kind, read_at: at, complete, unread, sandboxes };
        let mut ids: BTreeSet<ContainerId> = row.sandboxes.keys().cloned().collect();
        ids.extend(
            self.runtimes.insert(place, row).into_iter().flat_map(|before| before.sandboxes.into_keys()),
        );
        self.note_known(at, ids);
    }

    /// Takes in what changed in a runtime's records. Gives the sandboxes that this is about.
    pub(in crate::engine::world) fn change_runtime(
        &mut self,
        at: Timestamp,
        it: RuntimeChanged,
    ) -> BTreeSet<ContainerId> {
        let Some(row) = self.runtimes.get_mut(&it.place) else { return BTreeSet::new() };
        row.read_at = at;
        let mut ids = BTreeSet::new();
        for id in it.gone {
            row.sandboxes.remove(&id);
            ids.insert(id);
        }
        for named in it.came {
            ids.insert(named.id.clone());
            row.sandboxes.insert(named.id, named.pod);
        }
        self.note_known(at, ids.iter().cloned());
        ids
    }

    /// Forgets the runtimes that were last read before `begun`.
    pub(in crate::engine::world) fn drop_runtimes(&mut self, at: Timestamp, begun: Timestamp) {
        let gone: Vec<String> = self
            .runtimes
            .iter()
            .filter(|(_, row)| row.read_at < begun)
            .map(|(place, _)| place.clone())
            .collect();
        for place in gone {
            self.is_absence_noted = false;
            let ids = self.runtimes.remove(&place).into_iter().flat_map(|row| row.sandboxes.into_keys());
            self.note_known(at, ids);
        }
    }

    /// The pod of a sandbox, joined from all runtimes' records. containerd's folders have only ids; its
    /// socket names the pods.
    pub(crate) fn pod_on_record(&self, id: &ContainerId) -> PodName {
        let mut pod = PodName::default();
        let said = self.runtimes.values().filter_map(|runtime| runtime.sandboxes.get(id)?.as_ref());
        said.for_each(|named| pod.learn(named));
        pod
    }

    /// Notes after a reading which of these sandboxes are on record, and since when.
    fn note_known(&mut self, at: Timestamp, ids: impl IntoIterator<Item = ContainerId>) {
        for id in ids {
            let mut records =
                self.runtimes.values().filter_map(|runtime| runtime.sandboxes.get(&id)).peekable();
            if records.peek().is_none() {
                self.known_since.remove(&id);
                self.on_record.remove(&id);
                continue;
            }
            let mut uids: Vec<PodUid> = Vec::new();
            for uid in records.filter_map(|pod| pod.as_ref()?.uid.as_ref()) {
                if !uids.contains(uid) {
                    uids.push(uid.clone());
                }
            }
            self.known_since.entry(id.clone()).or_insert(at);
            self.on_record.set(id, uids);
        }
    }

    pub(in crate::engine::world) fn unread(&mut self, at: Timestamp, path: String) {
        if let Some(known) = self.unread.get_mut(&path) {
            known.read_at = at;
        } else if self.unread.len() < UNREAD {
            self.unread.insert(path, Unread { since: at, read_at: at });
        }
    }

    /// The configuration of an attachment's network.
    pub(crate) fn network(&self, row: &Attachment) -> Option<&Network> {
        let name = row.network.as_ref()?;
        self.networks().iter().find(|network| network.name == *name)
    }

    /// When libcni's cache was last read with a result for this attachment. None: the cache has none.
    pub(crate) fn cached_at(&self, row: &Attachment) -> Option<Timestamp> {
        row.cached_at.map(|at| at.max(self.cache_read_at))
    }

    /// The path of the store that is asked about the addresses of a network.
    pub(crate) fn asked_store(&self, network: &Network) -> Option<&String> {
        let ipam = network.ipam.as_deref()?;
        let mut asked = self.links.keys().filter_map(|path| self.stores.get_key_value(path));
        asked.find(|(_, (_, read))| read.store.kind.asked_for() == Some(ipam)).map(|(path, _)| path)
    }

    /// Whether the store of the lease's network was read whole.
    pub(crate) fn is_store_read(&self, row: &Attachment, lease: &Lease) -> bool {
        if lease.stored {
            return true;
        }
        // A directory that the operator declared has no network's name. It is this network's store only if it
        // ever had the address.
        self.stores.values().any(|(_, read)| {
            read.complete && read.store.network.is_some() && read.store.network == row.network
        })
    }

    pub(crate) fn used_runtimes(&self) -> Vec<&'static str> {
        RUNTIMES
            .iter()
            .filter(|row| {
                let kinds = row.kind.iter().chain(row.serves);
                let mut known = kinds.filter(|kind| self.of_kind(**kind).next().is_some()).peekable();
                row.kind.is_some() && (known.peek().is_none() || known.any(|kind| !self.is_unused(*kind)))
            })
            .flat_map(runtime::Runtime::programs)
            .collect()
    }

    /// An executable, and its version if it is known.
    pub(crate) fn program(&self, path: &str) -> ProgramFound {
        ProgramFound { path: path.to_owned(), version: self.programs.get(path).cloned().flatten() }
    }

    /// Fills in versions that became known since the last call. Returns whether there were any.
    pub(crate) fn learn_versions(&self, programs: &mut [ProgramFound]) -> bool {
        let mut learned = false;
        for it in programs.iter_mut().filter(|it| it.version.is_none()) {
            it.version = self.programs.get(&it.path).cloned().flatten();
            learned |= it.version.is_some();
        }
        learned
    }

    /// A daemon's name, and its version where its file shows it.
    pub(crate) fn with_version(&self, row: &Process) -> String {
        let version = self.programs.get(&row.program.filename).cloned().flatten();
        version.map_or_else(|| row.comm.clone(), |version| format!("{} {version}", row.comm))
    }

    /// Whether a store of this network was read whole.
    pub(crate) fn has_store(&self, network: &str) -> bool {
        let mut all = self.stores.values();
        all.any(|(_, read)| read.complete && read.store.network.as_deref() == Some(network))
    }
}
