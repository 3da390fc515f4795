//! What is kept on record outside the kernel: IPAM stores, runtimes' sandboxes, the networks' configuration.
//!
//! **Invariant:** a record names what was, and proves nothing that lives. Only a complete reading says what is not.

pub(in crate::engine) mod pods;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use probe_common::runtime::{self, DOCKER};
use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timer,
        world::{EventContext, World, sandbox::Sandbox},
    },
    model::{
        change::Question,
        fact::{
            Network, NetworksRead, PodName, ProgramFound, RuntimeKind, RuntimeRead, RuntimeSandbox, StoreRead,
        },
        id::ContainerId,
        time::Timestamp,
    },
};

/// The records, each as it was last read.
#[derive(Debug, Default)]
pub(in crate::engine) struct Records {
    pub(in crate::engine) stores: BTreeMap<String, (Timestamp, StoreRead)>,
    pub(in crate::engine) runtimes: BTreeMap<String, Runtime>,
    pub(in crate::engine) networks: Option<(Timestamp, NetworksRead)>,
    pub(in crate::engine) kubelet_expected: bool,
    /// The files of libcni's cache that cannot be read, by path.
    pub(in crate::engine) unread: BTreeMap<String, Unread>,
    /// Since when each sandbox that is on record was known to be.
    pub(in crate::engine) known_since: BTreeMap<ContainerId, Timestamp>,
    /// Versions by the executable's path; `None`: it does not say.
    pub(in crate::engine) programs: BTreeMap<String, Option<String>>,
    /// When the records were last asked for.
    pub(in crate::engine) asked_at: Option<Timestamp>,
}

impl Records {
    /// Where runtimes answered when they were asked. The other places are folders.
    pub(in crate::engine) fn sockets(&self) -> Vec<String> {
        self.runtimes.keys().filter(|place| place.ends_with(".sock")).cloned().collect()
    }
}

/// A runtime's sandboxes as they were last read.
#[derive(Debug)]
pub(in crate::engine) struct Runtime {
    pub(in crate::engine) kind: Option<RuntimeKind>,
    pub(in crate::engine) read_at: Timestamp,
    pub(in crate::engine) complete: bool,
    /// So many of its sandboxes have a record that cannot be read.
    pub(in crate::engine) unread: u64,
    pub(in crate::engine) sandboxes: BTreeMap<ContainerId, Option<PodName>>,
}

/// Sandboxes of which only the records tell what becomes: a runtime forgets a sandbox, and a store is mended, without a
/// sign.
#[derive(Debug, Default)]
pub(in crate::engine) struct Waiting {
    /// Those that have no process yet.
    pub(in crate::engine) making: BTreeSet<ContainerId>,
    /// Those that are over while something on disk still holds an address for them.
    pub(in crate::engine) holding: BTreeSet<ContainerId>,
}

/// A file that was there and could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub since: Timestamp,
    /// The last time that it could not be.
    pub read_at: Timestamp,
}

/// One of them, as it is dumped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    Store(StoreRead),
    Runtime(RuntimeRead),
    Networks(NetworksRead),
    /// A file of libcni's cache that could not be read then, and since when it cannot be.
    Unread {
        path: String,
        since: Timestamp,
    },
    /// A sandbox that was on record then, and is since.
    KnownSince(ContainerId),
    Kubelet(bool),
    Program(ProgramFound),
    Asked,
}

/// The sandboxes on record whose network namespace is not known.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Unplaced {
    /// When the oldest of the records was read.
    read_at: Timestamp,
    /// None of them can have got a namespace that was made after this; none: there are none.
    youngest: Option<Timestamp>,
}

/// Whether a runtime has a sandbox on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Yes,
    /// All runtimes' records were whole, the oldest read at this time, and none has it.
    No {
        at: Timestamp,
    },
    /// No runtime's records can be read, or not all of them.
    Unknown,
}

/// What an operation of CNI changes on disk is there a moment after it.
const SETTLE: Duration = Duration::from_secs(1);
/// Reading a large store takes a while: a busy node does not do it all the time.
const BETWEEN: Duration = Duration::from_secs(5);
/// How often they are read while only they can tell something.
const POLL: Duration = Duration::from_secs(60);
/// So many files that cannot be read are remembered; a power cut tears a few.
const UNREAD: usize = 1024;
/// As many attachments and their addresses take as long again to read.
const MUCH: usize = 8192;
/// Not even the most make it rarer than so many times as rare.
const RAREST: usize = 5;
/// The kubelet gives up on a sandbox that is not made by then: twice its `runtimeRequestTimeout` of 2 minutes.
pub(in crate::engine) const MAKING: Duration = Duration::from_secs(4 * 60);
/// So many executables' versions are remembered.
const PROGRAMS: usize = 256;

impl Kept {
    /// Absence says nothing while there are records that were not read.
    #[must_use]
    pub fn unless(self, unread: bool) -> Self {
        match self {
            Self::No { .. } if unread => Self::Unknown,
            Self::Yes | Self::No { .. } | Self::Unknown => self,
        }
    }
}

impl Records {
    /// Whether any runtime has this sandbox on record.
    pub(in crate::engine) fn kept(&self, id: &ContainerId) -> Kept {
        if self.runtimes.values().any(|runtime| runtime.sandboxes.contains_key(id)) {
            return Kept::Yes;
        }
        self.absent()
    }

    /// Of what no runtime has on record.
    pub(in crate::engine) fn absent(&self) -> Kept {
        match self.runtimes.values().map(|runtime| runtime.read_at).min() {
            Some(at) if self.runtimes.values().all(|runtime| runtime.complete) => Kept::No { at },
            Some(_) | None => Kept::Unknown,
        }
    }

    pub(in crate::engine) fn of_kind(&self, kind: RuntimeKind) -> impl Iterator<Item = &Runtime> {
        self.runtimes.values().filter(move |row| row.kind == Some(kind))
    }

    /// Whether a runtime has nothing to do here: it has not one sandbox on record, all of its records read, and others
    /// have.
    pub(in crate::engine) fn is_unused(&self, kind: RuntimeKind) -> bool {
        let is_empty = |row: &Runtime| row.complete && row.sandboxes.is_empty();
        self.of_kind(kind).next().is_some()
            && self.of_kind(kind).all(is_empty)
            && self.runtimes.values().any(|row| !row.sandboxes.is_empty())
    }

    pub(in crate::engine) fn networks(&self) -> &[Network] {
        self.networks.as_ref().map_or(&[], |(_, read)| &read.networks)
    }

    /// The only network whose chain has this plugin.
    pub(in crate::engine) fn network_of(&self, plugin: &str) -> Option<&Network> {
        let mut all = self.networks().iter().filter(|network| network.plugins.iter().any(|it| it == plugin));
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    pub(in crate::engine) fn dump(&self) -> impl Iterator<Item = (Timestamp, Record)> + '_ {
        let stores = self.stores.values().map(|(at, read)| (*at, Record::Store(read.clone())));
        let runtimes = self.runtimes.iter().map(|(place, row)| {
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
        let networks = self.networks.iter().map(|(at, read)| (*at, Record::Networks(read.clone())));
        let unread = self
            .unread
            .iter()
            .map(|(path, it)| (it.read_at, Record::Unread { path: path.clone(), since: it.since }));
        let known = self.known_since.iter().map(|(id, since)| (*since, Record::KnownSince(id.clone())));
        let kubelet = (Timestamp::ZERO, Record::Kubelet(self.kubelet_expected));
        let programs = self.programs.iter().map(|(path, version)| {
            let it = ProgramFound { path: path.clone(), version: version.clone() };
            (Timestamp::ZERO, Record::Program(it))
        });
        let asked = self.asked_at.map(|at| (at, Record::Asked));
        let read = stores.chain(runtimes).chain(networks).chain(unread).chain(known);
        read.chain([kubelet]).chain(programs).chain(asked)
    }

    pub(in crate::engine) fn restore(&mut self, at: Timestamp, record: Record) {
        match record {
            Record::Store(read) => {
                self.stores.insert(read.store.path.clone(), (at, read));
            }
            Record::Runtime(read) => self.runtime(at, read),
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
            Record::Asked => self.asked_at = Some(at),
        }
    }

    fn runtime(&mut self, at: Timestamp, read: RuntimeRead) {
        let sandboxes = read.sandboxes.iter().map(|it| (it.id.clone(), it.pod.clone())).collect();
        let RuntimeRead { place, kind, sandboxes: _, complete, unread } = read;
        let row = Runtime { kind, read_at: at, complete, unread, sandboxes };
        self.runtimes.insert(place, row);
    }

    /// The pod of a sandbox, by what all runtimes' records say of it together: containerd's folders have ids alone, and
    /// its socket names the pods.
    fn pod_on_record(&self, id: &ContainerId) -> PodName {
        let mut pod = PodName::default();
        let said = self.runtimes.values().filter_map(|runtime| runtime.sandboxes.get(id)?.as_ref());
        said.for_each(|named| pod.learn(named));
        pod
    }

    /// After a reading: since when each sandbox is on record.
    fn note_known(&mut self, at: Timestamp) {
        let before = mem::take(&mut self.known_since);
        let ids = self.runtimes.values().flat_map(|runtime| runtime.sandboxes.keys());
        let since = |id: &ContainerId| before.get(id).copied().unwrap_or(at);
        self.known_since = ids.map(|id| (id.clone(), since(id))).collect();
    }

    /// The sandboxes on record whose pod's UID no source names, and since when each is.
    fn nameless(&self) -> impl Iterator<Item = (&ContainerId, Timestamp)> {
        let all = self.known_since.iter().map(|(id, since)| (id, *since));
        all.filter(|(id, _)| self.pod_on_record(id).uid.is_none())
    }

    pub(in crate::engine) fn unread(&mut self, at: Timestamp, path: String) {
        if let Some(known) = self.unread.get_mut(&path) {
            known.read_at = at;
        } else if self.unread.len() < UNREAD {
            self.unread.insert(path, Unread { since: at, read_at: at });
        }
    }
}

impl Unplaced {
    /// When the records were read that show that a namespace which was made then is nobody's. One that was there before us
    /// may be that of any of them.
    pub(in crate::engine) fn absent_at(&self, made_at: Option<Timestamp>) -> Option<Timestamp> {
        let is_later = |youngest: Timestamp| made_at.is_some_and(|made| youngest < made);
        self.youngest.is_none_or(is_later).then_some(self.read_at)
    }
}

/// How long after a sandbox's record its namespace may be made.
fn makes_netns_within(kind: Option<RuntimeKind>) -> Duration {
    if kind.is_some_and(|kind| runtime::Runtime::of(kind).records_last) { Duration::ZERO } else { MAKING }
}

impl World {
    pub(super) fn store_read(&mut self, ctx: EventContext, read: StoreRead) {
        // Of tens of thousands of records nothing has to be taken in again that was read before.
        if let Some((at, known)) = self.records.stores.get_mut(&read.store.path)
            && known.complete
            && *known == read
        {
            *at = ctx.at;
            return;
        }
        for holder in read.reservations.iter().filter_map(|it| it.holder.as_ref()) {
            self.record_vouches(ctx, &holder.container);
        }
        self.leases_in_store(ctx, &read);
        self.leases_dated(ctx, &read);
        self.records.stores.insert(read.store.path.clone(), (ctx.at, read));
    }

    pub(super) fn runtime_read(&mut self, ctx: EventContext, read: RuntimeRead) {
        for it in &read.sandboxes {
            if let Some(pod) = &it.pod {
                self.attachments_named(&it.id, pod);
            }
        }
        for it in &read.sandboxes {
            // As long as a sandbox of it is on record, a pod has not gone.
            if let Some(pod) = self.pod_of_record(&it.id, it.pod.as_ref())
                && self.pods.get(&pod).is_some_and(|row| row.left_at.is_some())
            {
                self.pods.left(pod, ctx.at);
            }
        }
        self.records.runtime(ctx.at, read);
        self.records.note_known(ctx.at);
        self.sandboxes.note_records(ctx.at, |id| self.records.kept(id));
    }

    fn pod_of_record(&self, id: &ContainerId, named: Option<&PodName>) -> Option<u64> {
        let by_uid = named.and_then(|pod| pod.uid.as_ref()).and_then(|uid| self.pods.by_uid(uid));
        by_uid.or_else(|| self.sandboxes.get(id)?.pod)
    }

    /// What the records say of a namespace that nobody is known to have; `None` while they cannot be read whole, or while
    /// a sandbox lives that is not on record and whose namespace is not known.
    pub(in crate::engine) fn unplaced(&self) -> Option<Unplaced> {
        let Kept::No { at: read_at } = self.records.absent().unless(self.has_unread_runtime()) else {
            return None;
        };
        let since = |id: &ContainerId| self.records.known_since.get(id).copied();
        let is_unknown = |row: &&Sandbox| !row.is_stopped() && !self.is_placed(&row.id);
        if self.sandboxes.values().filter(is_unknown).any(|row| since(&row.id).is_none()) {
            return None;
        }
        let runtimes = self.records.runtimes.values();
        let all = runtimes.flat_map(|runtime| runtime.sandboxes.keys().map(move |id| (runtime.kind, id)));
        let unplaced = all.filter(|(_, id)| !self.is_placed(id));
        let youngest =
            unplaced.map(|(kind, id)| since(id).unwrap_or(read_at) + makes_netns_within(kind)).max();
        Some(Unplaced { read_at, youngest })
    }

    fn is_placed(&self, id: &ContainerId) -> bool {
        let known = |row: &Sandbox| {
            let network = &row.network;
            network.netns.is_some() || network.netns_path.is_some() || network.is_host
        };
        self.sandboxes.get(id).is_some_and(known)
            || self.attachments_of(id).any(|row| row.netns_path.is_some())
    }

    /// Whether a runtime runs whose records were not read: what no record has may stand there.
    pub(in crate::engine) fn has_unread_runtime(&self) -> bool {
        self.records.of_kind(RuntimeKind::Docker).next().is_none()
            && self.daemons(DOCKER.cri_server.as_slice()).next().is_some()
    }

    pub(super) fn networks_read(&mut self, ctx: EventContext, read: NetworksRead) {
        self.records.networks = Some((ctx.at, read));
    }

    pub(super) fn program_found(&mut self, it: ProgramFound) {
        if self.records.programs.len() < PROGRAMS {
            self.records.programs.insert(it.path, it.version);
        }
    }

    /// Stores and runtimes that a complete listing no longer has are gone.
    pub(super) fn stores_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let all = mem::take(&mut self.records.stores);
        let (kept, gone) = all.into_iter().partition(|(_, (at, _))| *at >= begun);
        self.records.stores = kept;
        let gone: BTreeMap<String, (Timestamp, StoreRead)> = gone;
        for (_, read) in gone.into_values() {
            self.leases_in_store(ctx, &StoreRead { reservations: Vec::new(), complete: true, ..read });
        }
    }

    pub(super) fn runtimes_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        self.records.runtimes.retain(|_, row| row.read_at >= begun);
        self.records.note_known(ctx.at);
        self.judge_abandoned(ctx);
    }

    /// Something changed that the records will show: they are read again soon.
    pub(in crate::engine) fn records_changed(&mut self, at: Timestamp) {
        let soonest = self.records.asked_at.map_or(at, |asked| asked + BETWEEN * self.reading_takes());
        self.timers.arm_earlier(timer::Name::Records, (at + SETTLE).max(soonest));
    }

    /// What the records alone tell of, they tell when they are read: a runtime forgets a sandbox, and a store is mended,
    /// without a sign. While either is waited for they are read from time to time.
    pub(in crate::engine) fn poll_records(&mut self, now: Timestamp, waiting: &Waiting) {
        let again = self.records.asked_at.unwrap_or(now) + POLL * self.reading_takes();
        if !waiting.holding.is_empty() {
            self.timers.arm_earlier(timer::Name::Records, again);
        }
        if let Some(due) = self.abandoned_due(&waiting.making) {
            let is_asked = self.records.asked_at.is_some_and(|asked| asked >= due);
            self.timers.arm_earlier(timer::Name::Records, if is_asked { again } else { due.max(now) });
        }
    }

    /// The more there is on record, the more rarely it is read: so many times.
    fn reading_takes(&self) -> u32 {
        let times = (1 + self.attachments.len() / MUCH).min(RAREST);
        u32::try_from(times).unwrap_or(1)
    }

    pub(super) fn ask_records(&mut self, now: Timestamp) {
        self.records.asked_at = Some(now);
        self.ask(Question::Records);
    }
}
