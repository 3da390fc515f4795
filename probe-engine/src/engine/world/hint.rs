//! Facts about pods and containers that are not known yet. A log folder or a cached CNI result proves no running pod,
//! so its facts are kept here until other evidence shows the pod.

use crate::{
    engine::world::{EventContext, World, args::Args, presence::Voucher},
    model::{
        fact::{CacheFound, NameSource, PodName, Role},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};
use serde::{Deserialize, Serialize};

/// The facts about a container's id for which no process or cgroup is known yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub(crate) id: ContainerId,
    pub(crate) at: Timestamp,
    pub(crate) role: Option<Role>,
    pub(crate) sandbox: Option<ContainerId>,
    pub(crate) name: Option<String>,
    pub(crate) pod: Option<PodName>,
    pub(crate) netns_path: Option<String>,
    /// When its program was executed, by the date of a file of the runtime.
    pub(crate) started: Option<Timestamp>,
    pub(crate) source: NameSource,
}

/// The name of the pod with a UID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    pub(crate) uid: PodUid,
    pub(crate) at: Timestamp,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) source: NameSource,
}

impl Hint {
    pub(super) fn new(id: ContainerId, source: NameSource) -> Self {
        Self {
            id,
            at: Timestamp::ZERO,
            role: None,
            sandbox: None,
            name: None,
            pod: None,
            netns_path: None,
            started: None,
            source,
        }
    }

    /// Whether it has a fact of what a container is.
    pub(super) fn says_anything(&self) -> bool {
        self.role.is_some() || self.sandbox.is_some() || self.name.is_some() || self.pod.is_some()
    }

    /// Adds the facts of another hint that this hint lacks.
    fn join(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        self.role = self.role.or(other.role);
        self.sandbox = self.sandbox.take().or(other.sandbox);
        self.name = self.name.take().or(other.name);
        self.pod = self.pod.take().or(other.pod);
        self.netns_path = self.netns_path.take().or(other.netns_path);
        self.started = self.started.or(other.started);
    }
}

impl Name {
    pub(super) fn pod_name(&self) -> PodName {
        PodName {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
        }
    }
}

impl World {
    /// Gives the hint to the container that it names, or keeps it until that container is known.
    pub(super) fn hint(&mut self, ctx: EventContext, hint: Hint) {
        if self.containers.contains_key(&hint.id) || self.sandboxes.contains_key(&hint.id) {
            self.learn(ctx, &hint);
            return;
        }
        self.schedule_reap(ctx.at);
        match self.hints.get_mut(&hint.id) {
            Some(known) => known.join(hint),
            None => {
                self.hints.insert(hint.id.clone(), hint);
            }
        }
    }

    pub(super) fn pod_found(
        &mut self,
        ctx: EventContext,
        uid: PodUid,
        namespace: String,
        name: String,
        source: NameSource,
    ) {
        self.beliefs.pod_is_there(&uid);
        let known = Name { uid: uid.clone(), at: ctx.at, namespace, name, source };
        self.pods.learn_if_known(&known.pod_name(), source);
        self.pods.names.insert(uid, known);
        self.schedule_reap(ctx.at);
    }

    pub(super) fn cache_found(&mut self, ctx: EventContext, it: CacheFound) {
        self.attachment_cached(ctx, &it);
        let args = Args::of(it.args.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let pod = args.pod.name.is_some().then_some(args.pod);
        if pod.is_none() && it.netns.is_none() {
            return;
        }
        let of_pod = pod.is_some().then_some(Role::Sandbox);
        let hint = Hint {
            at: ctx.at,
            role: of_pod,
            pod,
            netns_path: it.netns,
            ..Hint::new(it.container.clone(), NameSource::CniCache)
        };
        self.hint(ctx, hint);
        // A CNI record confirms a sandbox that other evidence shows. Alone it proves no sandbox.
        self.sandboxes.vouch(&it.container, Voucher::Cni, ctx.at);
    }
}
