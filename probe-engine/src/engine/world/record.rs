//! The records outside of the kernel: IPAM stores, the runtimes' sandboxes, the networks' configuration.
//!
//! **Invariant:** a record does not prove that a thing lives. Only a complete reading proves that no record names it.

mod dump;
pub(in crate::engine) mod pods;
pub(in crate::engine) mod reading;
mod unplaced;

pub(crate) use dump::Record;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pods::OnRecord;
use probe_common::runtime::{self, RUNTIMES};

use crate::{
    engine::world::{
        attachment::{Attachment, Lease},
        ipam_store::IpamStore,
        process::Process,
    },
    model::{
        fact::{
            Network, NetworksRead, PodName, ProgramFound, RuntimeChanged, RuntimeKind, RuntimeRead, StoreKind,
        },
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// The records as they were last read.
#[derive(Debug, Default)]
pub(in crate::engine) struct Records {
    pub(in crate::engine) stores: BTreeMap<String, (Timestamp, IpamStore)>,
    pub(in crate::engine) runtimes: BTreeMap<String, Runtime>,
    /// What all runtimes have on record together.
    pub(in crate::engine) on_record: OnRecord,
    /// When libcni's cache was last found unchanged, but for what was told.
    pub(in crate::engine) cache_read_at: Timestamp,
    pub(in crate::engine) networks: Option<(Timestamp, NetworksRead)>,
    /// Since when each reading of the networks' configuration has found none that can be decoded.
    pub(in crate::engine) unconfigured_since: Option<Timestamp>,
    /// When a reading of the networks' configuration last found one after others that had found none.
    pub(in crate::engine) reconfigured_at: Option<Timestamp>,
    /// When the runtime first made a sandbox with a network and without a call of the plugin `loopback`.
    pub(in crate::engine) no_loopback_since: Option<Timestamp>,
    /// `CNI_PATH` of the runtime's last call for a pod.
    pub(in crate::engine) cni_path: Option<String>,
    /// Since when each reading of the networks' configuration has come with no runtime's records.
    pub(in crate::engine) without_runtimes_since: Option<Timestamp>,
    pub(in crate::engine) kubelet_expected: bool,
    /// The files of libcni's cache that could not be read, by path.
    pub(in crate::engine) unread: BTreeMap<String, Unread>,
    /// Since when each sandbox has been on record.
    pub(in crate::engine) known_since: BTreeMap<ContainerId, Timestamp>,
    /// The versions of executables by path. None: the executable does not tell its version.
    pub(in crate::engine) programs: BTreeMap<String, Option<String>>,
    /// When the engine last asked for the version of each plugin that set up a sandbox.
    pub(in crate::engine) plugins_asked: BTreeMap<String, Timestamp>,
    /// When the engine last asked for a reading of the records.
    pub(in crate::engine) asked_at: Option<Timestamp>,
    /// Of every sandbox that was there at the last reading it is noted whether a runtime had it on record.
    is_absence_noted: bool,
}

/// The sandboxes of a runtime as they were last read.
#[derive(Debug)]
pub(in crate::engine) struct Runtime {
    pub(in crate::engine) kind: Option<RuntimeKind>,
    pub(in crate::engine) read_at: Timestamp,
    pub(in crate::engine) complete: bool,
    /// How many records of its sandboxes could not be read.
    pub(in crate::engine) unread: u64,
    pub(in crate::engine) sandboxes: BTreeMap<ContainerId, Option<PodName>>,
}

/// The sandboxes for which the records must be read again: no other sign shows that a runtime forgot a sandbox or that
/// a store was repaired.
#[derive(Debug, Default)]
pub(in crate::engine) struct Waiting {
    /// The sandboxes that have no process yet.
    pub(in crate::engine) making: BTreeSet<ContainerId>,
    /// The stopped sandboxes for which a file still holds an address.
    pub(in crate::engine) holding: BTreeSet<ContainerId>,
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

/// The kubelet gives up on a sandbox that is not made within this time: twice its `runtimeRequestTimeout` of 2 minutes.
pub(in crate::engine) const MAKING: Duration = Duration::from_secs(4 * 60);

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
    /// The sockets of the runtimes that have this sandbox on record: one at most, since ids are never used twice.
    pub(in crate::engine) fn sockets_with<'a>(
        &'a self,
        sandbox: &'a ContainerId,
    ) -> impl Iterator<Item = &'a String> {
        let has = |row: &Runtime| row.sandboxes.contains_key(sandbox);
        self.runtimes.iter().filter(move |(place, row)| is_socket(place) && has(row)).map(|(place, _)| place)
    }

    /// The sockets at which to ask about these sandboxes: those of their runtimes, or of all runtimes if one of the sandboxes
    /// is on no record, since any of them may have made it.
    pub(in crate::engine) fn sockets_of(&self, sandboxes: &[ContainerId]) -> Vec<String> {
        let is_on_record = |id: &ContainerId| self.sockets_with(id).next().is_some();
        if sandboxes.is_empty() || !sandboxes.iter().all(is_on_record) {
            return self.runtimes.keys().filter(|place| is_socket(place)).cloned().collect();
        }
        let own: BTreeSet<&String> = sandboxes.iter().flat_map(|id| self.sockets_with(id)).collect();
        own.into_iter().cloned().collect()
    }

    /// Whether a runtime has this sandbox on record.
    pub(in crate::engine) fn has_record(&self, id: &ContainerId) -> HasRecord {
        if self.is_on_record(id) { HasRecord::Yes } else { self.absent() }
    }

    /// Whether the latest reading of any runtime's records has this sandbox.
    pub(in crate::engine::world) fn is_on_record(&self, id: &ContainerId) -> bool {
        self.on_record.contains(id)
    }

    /// The answer for a sandbox that no runtime has on record.
    pub(in crate::engine) fn absent(&self) -> HasRecord {
        match self.runtimes.values().map(|runtime| runtime.read_at).min() {
            Some(at) if self.runtimes.values().all(|runtime| runtime.complete) => HasRecord::No { at },
            Some(_) | None => HasRecord::Unknown,
        }
    }

    pub(in crate::engine) fn of_kind(&self, kind: RuntimeKind) -> impl Iterator<Item = &Runtime> {
        self.runtimes.values().filter(move |row| row.kind == Some(kind))
    }

    /// Whether a runtime is not used: all its records were read and it has no sandbox on record, while another runtime
    /// has some.
    pub(in crate::engine) fn is_unused(&self, kind: RuntimeKind) -> bool {
        let is_empty = |row: &Runtime| row.complete && row.sandboxes.is_empty();
        self.of_kind(kind).next().is_some()
            && self.of_kind(kind).all(is_empty)
            && self.runtimes.values().any(|row| !row.sandboxes.is_empty())
    }

    pub(in crate::engine) fn networks(&self) -> &[Network] {
        self.networks.as_ref().map_or(&[], |(_, read)| &read.networks)
    }

    /// The folders in which the runtime looks for the executables of plugins, as it said with its last call.
    pub(in crate::engine) fn plugin_folders(&self) -> Vec<String> {
        let folders = self.cni_path.iter().flat_map(|path| path.split(':'));
        folders.filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
    }

    /// The network whose chain has this plugin, if there is exactly one.
    pub(in crate::engine) fn network_of(&self, plugin: &str) -> Option<&Network> {
        let mut all = self.networks().iter().filter(|network| network.plugins.iter().any(|it| it == plugin));
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    fn add_runtime(&mut self, at: Timestamp, read: RuntimeRead) {
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
    fn change_runtime(&mut self, at: Timestamp, it: RuntimeChanged) -> BTreeSet<ContainerId> {
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
    fn drop_runtimes(&mut self, at: Timestamp, begun: Timestamp) {
        let is_gone = |row: &Runtime| row.read_at < begun;
        let gone: Vec<String> =
            self.runtimes.iter().filter(|(_, row)| is_gone(row)).map(|(place, _)| place.clone()).collect();
        for place in gone {
            self.is_absence_noted = false;
            let ids = self.runtimes.remove(&place).into_iter().flat_map(|row| row.sandboxes.into_keys());
            self.note_known(at, ids);
        }
    }

    /// The pod of a sandbox, joined from all runtimes' records. containerd's folders have only ids; its socket names
    /// the pods.
    fn pod_on_record(&self, id: &ContainerId) -> PodName {
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

    pub(in crate::engine) fn unread(&mut self, at: Timestamp, path: String) {
        if let Some(known) = self.unread.get_mut(&path) {
            known.read_at = at;
        } else if self.unread.len() < UNREAD {
            self.unread.insert(path, Unread { since: at, read_at: at });
        }
    }

    /// The configuration of an attachment's network.
    pub(in crate::engine) fn network(&self, row: &Attachment) -> Option<&Network> {
        let name = row.network.as_ref()?;
        self.networks().iter().find(|network| network.name == *name)
    }

    /// When libcni's cache was last read with a result for this attachment. None: the cache has none.
    pub(in crate::engine) fn cached_at(&self, row: &Attachment) -> Option<Timestamp> {
        row.cached_at.map(|at| at.max(self.cache_read_at))
    }

    /// Whether the store of the lease's network was read whole.
    pub(in crate::engine) fn is_store_read(&self, row: &Attachment, lease: &Lease) -> bool {
        let serves = |read: &IpamStore| match &read.store.network {
            Some(network) => Some(network) == row.network.as_ref(),
            // A directory that the operator declared has no network's name. It is this network's store if it ever had
            // the address.
            None => matches!(read.store.kind, StoreKind::AwsIpamd) && lease.stored,
        };
        lease.stored || self.stores.values().any(|(_, read)| read.complete && serves(read))
    }

    pub(in crate::engine::world) fn used_runtimes(&self) -> Vec<&'static str> {
        let is_used = |row: &&'static runtime::Runtime| {
            let known = |kind: &&RuntimeKind| self.of_kind(**kind).next().is_some();
            let mut known = row.kind.iter().chain(row.serves).filter(known).peekable();
            row.kind.is_some() && (known.peek().is_none() || known.any(|kind| !self.is_unused(*kind)))
        };
        RUNTIMES.iter().filter(is_used).flat_map(runtime::Runtime::programs).collect()
    }

    /// Fills in versions that became known since the last call. Returns whether there were any.
    pub(in crate::engine) fn learn_versions(&self, programs: &mut [ProgramFound]) -> bool {
        let mut learned = false;
        for it in programs.iter_mut().filter(|it| it.version.is_none()) {
            it.version = self.programs.get(&it.path).cloned().flatten();
            learned |= it.version.is_some();
        }
        learned
    }

    /// A daemon's name, and its version where its file tells it.
    pub(in crate::engine::world) fn with_version(&self, row: &Process) -> String {
        let version = self.programs.get(&row.program.filename).cloned().flatten();
        version.map_or_else(|| row.comm.clone(), |version| format!("{} {version}", row.comm))
    }

    /// Whether a store of this network was read whole.
    pub(in crate::engine::world) fn has_store(&self, network: &str) -> bool {
        let mut all = self.stores.values();
        all.any(|(_, read)| read.complete && read.store.network.as_deref() == Some(network))
    }
}
