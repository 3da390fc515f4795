//! Pod sandboxes: everything that is known of one, from its first sign until nothing asks for it any more.
//!
//! The signs come from many sides, and any of them may be missing: CRI-O holds a sandbox without a process, a pod on the
//! node's network has no CNI call, and with user namespaces the process comes before the call.
//!
//! A sandbox that has stopped is first `Stopped`: late records still find it, its pod and its namespace. Then it is
//! `Remembered`: verdicts on its pod and on its addresses may need it, but it has let go of all other rows.
//!
//! What is known of an id before anything shows that it exists is no state of a sandbox: whether the id is a sandbox's or
//! a container's is not known by then. It is kept as a [hint](super::hint).
//!
//! **Invariant:** only this module and those below it change a sandbox: they alone can get one mutably. Memory is
//! bounded: a remembered sandbox is forgotten after a while, and so are the oldest of too many.

mod ending;
mod evidence;
mod life;
pub(in crate::engine) mod run;
mod table;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

pub use ending::{Death, NetnsGone};
pub use run::{ContainerRun, Ended};
pub(in crate::engine) use table::Table;

use crate::{
    engine::{
        grouped::Grouped,
        world::{EventContext, netns_path::plain, presence::Presence},
    },
    model::{
        change::{EvidenceEvent, StopReason},
        fact::{Origin, PodName},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: ContainerId,
    /// `world::pod::Pod::id`; none once the sandbox is only remembered.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub pod: Option<u64>,
    /// The first sign of it, and who gave that.
    pub first_at: Timestamp,
    pub origin: Origin,
    pub state: State,
    pub presence: Presence,
    pub network: Network,
    /// Since when its pause process or a container of it runs.
    pub up_since: Option<Timestamp>,
    pub work: Work,
    pub ending: Ending,
    /// A record was lost while it was there.
    pub gapped: bool,
    pub told: Told,
}

/// What sandboxes have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Group {
    Pod(u64),
    /// What was told of them named a pod with this UID.
    Uid(PodUid),
    /// They have a container, and their pod's start is not held to be complete.
    Starting,
    /// The file that is to hold their network namespace, as [`plain`] spells it.
    NetnsPath(String),
}

impl Grouped for Sandbox {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        let path = self.network.netns_path.as_deref().map(|path| Group::NetnsPath(plain(path).into_owned()));
        let is_starting = self.work.started_at.is_none() && !self.work.containers.is_empty();
        let uid = self.told.pod.uid.clone().map(Group::Uid);
        let starting = is_starting.then_some(Group::Starting);
        self.pod.map(Group::Pod).into_iter().chain(uid).chain(starting).chain(path)
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
    /// It stopped then, and is kept for verdicts alone.
    Remembered {
        stopped_at: Timestamp,
    },
}

/// The network of a sandbox. The outcome of each ADD stands in its [attachment](super::attachment).
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// `world::netns::Netns::life`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub netns: Option<u64>,
    /// As `CNI_NETNS` names it.
    pub netns_path: Option<String>,
    /// When its namespace was made. The sandbox is remembered for longer than the namespace.
    pub netns_created_at: Option<Timestamp>,
    /// A process of it runs in the node's own network: no CNI call is awaited.
    pub is_host: bool,
}

/// The containers that ran in a sandbox, and whether its pod's start is complete with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// In the order in which they became known.
    pub containers: Vec<ContainerRun>,
    /// A record was lost while it was there: other containers may have run in it. A listing cannot heal this.
    pub is_unsure: bool,
    /// When its pod's start was held to be complete.
    pub started_at: Option<Timestamp>,
    /// The start was held to be complete once before, and went on.
    pub is_revised: bool,
}

/// How a sandbox came to its end, as far as that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// When the runtime was first seen to stop it.
    pub stop_at: Option<Timestamp>,
    /// How the process that holds it ended, if that was before the runtime's stop, or by somebody else.
    pub death: Option<Death>,
    /// Its namespace went, and who dropped it last.
    pub netns_gone: Option<NetnsGone>,
    /// Since when no runtime has had it on record, all of them read whole.
    pub forgotten_at: Option<Timestamp>,
    /// Its runtime ended while it made it, and no runtime knows it.
    pub is_abandoned: bool,
}

/// What was told of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its pod, by all that was told. Its row in the table of pods may be gone.
    pub pod: PodName,
    /// In order.
    pub evidence: Vec<EvidenceEvent>,
}

/// What can happen to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ready,
    Stop(StopReason),
    Remember,
    /// A sign of life of one that was held to be over.
    Return,
}

impl State {
    fn step(self, step: Step, at: Timestamp) -> Option<Self> {
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

impl Sandbox {
    fn new(id: ContainerId, ctx: EventContext) -> Self {
        Self {
            id,
            pod: None,
            first_at: ctx.at,
            origin: ctx.origin,
            state: State::Created,
            presence: Presence::default(),
            network: Network::default(),
            up_since: None,
            work: Work::default(),
            ending: Ending::default(),
            gapped: false,
            told: Told::default(),
        }
    }

    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.over_at().is_some()
    }

    /// When it stopped.
    #[must_use]
    pub fn over_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Created | State::Ready { .. } => None,
            State::Stopped { at, .. } | State::Remembered { stopped_at: at } => Some(at),
        }
    }

    /// Whether it is kept for verdicts alone.
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        matches!(self.state, State::Remembered { .. })
    }

    /// The containers that ran in it.
    #[must_use]
    pub fn containers(&self) -> &[ContainerRun] {
        &self.work.containers
    }

    /// Lets go of all other rows. False: it has not stopped, or was remembered before.
    fn remember(&mut self, at: Timestamp) -> bool {
        let Some(remembered) = self.state.step(Step::Remember, at) else { return false };
        self.state = remembered;
        self.pod = None;
        self.presence = Presence::default();
        let netns_created_at = self.network.netns_created_at;
        self.network = Network { netns_created_at, ..Network::default() };
        true
    }

    /// It is there after all. What was seen of it before stays known.
    fn come_back(&mut self, at: Timestamp) {
        if let Some(created) = self.state.step(Step::Return, at) {
            self.state = created;
            self.up_since = None;
        }
    }
}
