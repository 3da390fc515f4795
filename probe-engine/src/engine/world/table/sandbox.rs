//! Pod sandboxes. A row holds everything that is known of a sandbox, from its first sign until nothing needs
//! it any more.
//!
//! The signs come from many sources, and any of them may be missing. CRI-O makes sandboxes without a pause
//! process. A pod on the node's network has no CNI call. With user namespaces the process comes before the
//! call.
//!
//! A sandbox that has stopped is first `Stopped`: late records still find it, its pod and its namespace. Then
//! it is `Remembered`: verdicts on its pod and its addresses may need it, but it refers to no other row any
//! more.
//!
//! Facts about an id that nothing shows to exist are no state of a sandbox, because the id may be a
//! container's. They are kept as a [hint](super::hint).
//!
//! **Invariant:** memory is bounded: a remembered sandbox is forgotten after a while, and the oldest are
//! forgotten if there are too many.

pub(crate) mod ending;
pub(crate) mod evidence;
pub(crate) mod rows;
pub(crate) mod run;

pub(crate) use ending::MOMENTS;
pub use ending::{Death, LastStarted, NetnsGone};
pub(crate) use rows::Table;
pub use run::{ContainerRun, Ended};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::{
        grouped::Grouped,
        world::{
            EventContext,
            netns_path::plain,
            table::{attachment::Attachment, container::Container, presence::Presence},
        },
    },
    model::{
        change::{EvidenceEvent, StopReason},
        fact::{Origin, PodName, Span},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub(crate) id: ContainerId,
    /// The `world::table::pod::Pod::id` of its pod. None once the sandbox is only remembered.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) pod: Option<u64>,
    /// When its pod was made, as far as that was known at its end. The pod's own row may be forgotten before
    /// this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_made_at: Option<Timestamp>,
    /// The time and the origin of its first sign.
    pub(crate) first_at: Timestamp,
    pub(crate) origin: Origin,
    pub(crate) state: State,
    pub(crate) presence: Presence,
    pub(crate) network: Network,
    /// Since when its pause process or one of its containers has run.
    pub(crate) up_since: Option<Timestamp>,
    /// The programs of its containers are no processes of the node: a virtual machine runs them, or a kernel
    /// that is a process itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hides_programs: bool,
    pub(crate) work: Work,
    pub(crate) ending: Ending,
    /// A record was lost while it existed.
    pub(crate) gapped: bool,
    /// From when on records may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gapped_since: Option<Timestamp>,
    #[serde(rename = "told")]
    pub(crate) reported: Reported,
}

/// The properties by which the table finds sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Pod(u64),
    /// An event of the sandbox named a pod with this UID.
    Uid(PodUid),
    /// The sandbox is being made.
    Created,
    /// The sandbox has a container, and its pod's start does not count as complete.
    Starting,
    /// Its pod is on the host's network.
    Host,
    /// The file that should hold the sandbox's network namespace. The path is spelled as [`plain`] spells it.
    NetnsPath(String),
}

impl Grouped for Sandbox {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        let path = self.network.netns_path.as_deref().map(|path| Group::NetnsPath(plain(path).into_owned()));
        let is_starting = self.work.started_at.is_none() && !self.work.containers.is_empty();
        let uid = self.reported.pod.uid.clone().map(Group::Uid);
        let starting = is_starting.then_some(Group::Starting);
        let created = (self.state == State::Created).then_some(Group::Created);
        let host = self.network.is_host.then_some(Group::Host);
        self.pod.map(Group::Pod).into_iter().chain(uid).chain(created).chain(starting).chain(host).chain(path)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Created,
    Ready {
        at: Timestamp,
    },
    Stopped {
        at: Timestamp,
        why: StopReason,
    },
    /// It stopped at this time, and is kept only for verdicts.
    Remembered {
        stopped_at: Timestamp,
    },
}

/// The network of a sandbox. The result of each ADD is in its [attachment](super::attachment).
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The `world::table::netns::Netns::life` of its network namespace.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) netns: Option<u64>,
    /// The path in `CNI_NETNS`.
    pub(crate) netns_path: Option<String>,
    /// When its namespace was made. The sandbox is remembered for longer than the namespace.
    pub(crate) netns_created_at: Option<Timestamp>,
    /// A process of it runs in the node's own network namespace, so no CNI call is expected.
    pub(crate) is_host: bool,
    /// An ADD that ran when a listing found it has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) found_add_ended: bool,
}

/// The containers that ran in a sandbox, and the state of its pod's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// In the order in which they became known.
    pub(crate) containers: Vec<ContainerRun>,
    /// Other containers may have run in it: a record was lost while the sandbox existed, or it was never
    /// known in which sandbox a container of its pod ran. A listing cannot show that none did.
    pub(crate) is_unsure: bool,
    /// When its pod's start was counted as complete.
    pub(crate) started_at: Option<Timestamp>,
    /// When a container last came to its end without having run its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tried_at: Option<Timestamp>,
    /// When the logs were last searched for a pull for which it may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pulls_asked_at: Option<Timestamp>,
    /// When such a pull was last under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pulling_at: Option<Timestamp>,
    /// The start counted as complete once before, and then continued.
    pub(crate) is_revised: bool,
    /// When the kubelet held requests back before the sandbox's first sign, if its log shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests_held: Vec<Span>,
}

/// The observations of a sandbox's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    /// When the runtime was first seen to stop it.
    pub(crate) stop_at: Option<Timestamp>,
    /// The daemon that had started last by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_started: Option<LastStarted>,
    /// How the pause process ended, if that was before the runtime's stop or was not the runtime's doing.
    pub(crate) death: Option<Death>,
    /// When its namespace was dropped, and by whom.
    pub(crate) netns_gone: Option<NetnsGone>,
    /// Since when no runtime has had it on record, with all records read completely.
    pub(crate) forgotten_at: Option<Timestamp>,
    /// Its runtime ended while it was making the sandbox, and no runtime knows the sandbox.
    pub(crate) is_abandoned: bool,
}

/// The parts of a sandbox's reported events that the engine stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// Its pod, as its events named it. The pod's own row may be gone.
    pub(crate) pod: PodName,
    /// In the order of the events.
    pub(crate) evidence: Vec<EvidenceEvent>,
}

/// The transitions of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ready,
    Stop(StopReason),
    Remember,
    /// A sign of life of a sandbox that counted as stopped.
    Return,
}

impl State {
    pub(crate) fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Created, Step::Ready) => Some(Self::Ready { at }),
            (Self::Created | Self::Ready { .. }, Step::Stop(why)) => Some(Self::Stopped { at, why }),
            (Self::Stopped { at: stopped_at, .. }, Step::Remember) => Some(Self::Remembered { stopped_at }),
            (Self::Remembered { .. }, Step::Return) => Some(Self::Created),
            (Self::Created | Self::Ready { .. }, Step::Remember | Step::Return)
            | (Self::Ready { .. }, Step::Ready)
            | (Self::Stopped { .. }, Step::Ready | Step::Stop(_) | Step::Return)
            | (Self::Remembered { .. }, Step::Ready | Step::Stop(_) | Step::Remember) => None,
        }
    }
}

/// A loss is reported at most this long after the lost record was made.
const LOSS_NOTICED: Duration = Duration::from_secs(5);

impl Sandbox {
    pub(in crate::engine::world) fn new(id: ContainerId, ctx: EventContext) -> Self {
        Self {
            id,
            pod: None,
            pod_made_at: None,
            first_at: ctx.at,
            origin: ctx.origin,
            state: State::Created,
            presence: Presence::default(),
            network: Network::default(),
            up_since: None,
            hides_programs: false,
            work: Work::default(),
            ending: Ending::default(),
            gapped: false,
            gapped_since: None,
            reported: Reported::default(),
        }
    }

    /// Whether no record about it is missing up to this time: none was lost, or only later ones.
    #[must_use]
    pub(crate) fn is_known_until(&self, at: Timestamp) -> bool {
        !self.gapped || self.gapped_since.is_some_and(|lost| at + LOSS_NOTICED <= lost)
    }

    /// Whether no record about it is missing up to its end.
    #[must_use]
    pub(crate) fn is_known(&self) -> bool {
        !self.gapped || self.over_at().is_some_and(|at| self.is_known_until(at))
    }

    #[must_use]
    pub(crate) fn is_stopped(&self) -> bool {
        self.over_at().is_some()
    }

    /// Whether it ends with its ADD that failed: it never had a process or a namespace, and no event shows
    /// its end.
    #[must_use]
    pub(crate) fn is_stillborn(&self, attachment: &Attachment) -> bool {
        let had_nothing = self.up_since.is_none() && self.network.netns.is_none();
        had_nothing && attachment.was_seen() && !attachment.is_added()
    }

    /// When it stopped.
    #[must_use]
    pub(crate) fn over_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Created | State::Ready { .. } => None,
            State::Stopped { at, .. } | State::Remembered { stopped_at: at } => Some(at),
        }
    }

    /// When the last of its containers ended, of those whose end was seen. They can outlive the pause process
    /// for long.
    #[must_use]
    pub(crate) fn emptied_at(&self) -> Option<Timestamp> {
        let ends = self.work.containers.iter().filter_map(|ran| ran.ended).map(|ended| ended.at);
        ends.max().max(self.work.tried_at)
    }

    /// Since when it has been ready while none of its containers runs. None: it is not, or one runs.
    #[must_use]
    pub(crate) fn idle_since(&self) -> Option<Timestamp> {
        let State::Ready { at } = self.state else { return None };
        let runs = self.work.containers.iter().any(|ran| ran.ended.is_none());
        (!runs).then(|| self.emptied_at().map_or(at, |emptied_at| emptied_at.max(at)))
    }

    /// Whether it is kept only for verdicts.
    #[must_use]
    pub(crate) fn is_remembered(&self) -> bool {
        matches!(self.state, State::Remembered { .. })
    }

    /// Whether an unplaced container of its pod may have run in it.
    pub(crate) fn may_have_run(&self, container: &Container) -> bool {
        let is_possible = container.sandbox.as_ref().is_none_or(|sandbox| *sandbox == self.id);
        let over_at = self.over_at().unwrap_or(Timestamp(u64::MAX));
        is_possible && container.is_unplaced() && (self.first_at..=over_at).contains(&container.first_at)
    }

    /// The containers that ran in it.
    #[must_use]
    pub(crate) fn containers(&self) -> &[ContainerRun] {
        &self.work.containers
    }

    /// Removes all references to other rows. Returns false if it has not stopped, or was remembered before.
    pub(in crate::engine::world) fn remember(&mut self, at: Timestamp) -> bool {
        let Some(remembered) = self.state.step(Step::Remember, at) else { return false };
        self.state = remembered;
        self.pod = None;
        self.presence = Presence::default();
        let netns_created_at = self.network.netns_created_at;
        self.network = Network { netns_created_at, ..Network::default() };
        true
    }

    /// The sandbox exists after all. Earlier observations of it are kept.
    fn come_back(&mut self, at: Timestamp) {
        if let Some(created) = self.state.step(Step::Return, at) {
            self.state = created;
            self.up_since = None;
        }
    }
}
