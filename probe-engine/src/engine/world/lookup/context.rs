//! The pod, sandbox and container of a change. They are looked up when the change's event is sent, because
//! more is known then than when the change happened.

use crate::{
    engine::{
        queued_change::{Subject, Wait},
        world::{
            World,
            table::{self, cgroup::Cgroup, container::Container, netns::Netns, pod::Pod},
        },
    },
    model::{
        change::{CgroupRef, ContainerRef, Context, PodRef},
        fact::{NameSource, PodName, Role},
        id::{ContainerId, PodUid},
    },
};

/// What a subject is about, as the tables have it now.
pub(crate) struct Involved<'a> {
    world: &'a World,
    subject: &'a Subject,
    cgroup: Option<&'a Cgroup>,
    container: Option<&'a Container>,
    netns: Option<&'a Netns>,
    sandbox: Option<&'a ContainerId>,
    pod: Option<&'a Pod>,
}

impl Involved<'_> {
    /// Whether nothing more can become known about the subject.
    pub(crate) fn is_settled(&self) -> bool {
        let named = self.subject.named.as_ref();
        match (self.pod, named) {
            (Some(pod), named) => pod.named.name.is_some() || named.is_some_and(|named| named.name.is_some()),
            (None, Some(named)) => named.name.is_some(),
            // The subject may concern no pod: a container without a pod, or a CNI call without one.
            (None, None) => match self.container {
                Some(row) => row.role.is_some() || !row.question.is_open,
                None => self.netns.is_none() || self.sandbox.is_some(),
            },
        }
    }

    /// The UID of the pod, if the pod or its cgroup is known.
    pub(crate) fn uid(&self) -> Option<&PodUid> {
        match self.named() {
            Some((name, _)) => name.uid.as_ref(),
            None => self.cgroup?.pod.as_ref(),
        }
    }

    /// The pod's name, and where it comes from.
    fn named(&self) -> Option<(&PodName, NameSource)> {
        let by_row = self.pod.map(|row| (&row.named, row.source));
        let by_call = self.subject.named.as_ref().map(|name| (name, NameSource::CniArgs));
        by_row.filter(|(row, _)| row.name.is_some() || by_call.is_none()).or(by_call)
    }

    pub(crate) fn context(&self) -> Context {
        // Only the path of a cgroup names this pod.
        let world = self.world;
        let key = self.subject.cgroup.or_else(|| self.container.and_then(|row| row.cgroup));
        Context {
            sandbox: self.sandbox.cloned(),
            container: self
                .container
                .filter(|row| row.role != Some(Role::Sandbox))
                .map(|row| reference(world, row)),
            netns: self
                .netns
                .or_else(|| world.netns.get(world.sandboxes.get(self.sandbox?)?.network.netns?))
                .map(|row| row.key),
            cgroup: key
                .and_then(|key| world.cgroups.get(&key))
                .map(|row| CgroupRef { key: row.key, path: row.path.clone() }),
            pod: self
                .named()
                .map(|(name, source)| PodRef {
                    namespace: name.namespace.clone(),
                    name: name.name.clone(),
                    uid: name.uid.clone(),
                    source: Some(source),
                })
                .or_else(|| {
                    let uid = self.cgroup?.pod.clone()?;
                    Some(PodRef { uid: Some(uid), source: Some(NameSource::CgroupPath), ..PodRef::default() })
                }),
        }
    }
}

/// Looks up what a subject is about.
pub(crate) fn involved<'a>(world: &'a World, subject: &'a Subject) -> Involved<'a> {
    let cgroup = subject.cgroup.and_then(|key| world.cgroups.get(&key));
    let container = subject.container.as_ref().or_else(|| cgroup.and_then(|row| row.container.as_ref()));
    let container = container.and_then(|id| world.containers.get(id));
    let netns = subject.netns.and_then(|life| world.netns.get(life));
    let sandbox =
        sandbox_in(world, subject, container).or_else(|| netns.and_then(|row| row.sandbox.as_ref()));
    let pod = subject
        .pod
        .or_else(|| world.sandboxes.get(sandbox?)?.pod)
        .or_else(|| container.and_then(|row| row.pod))
        .or_else(|| cgroup.and_then(|row| row.pod.as_ref()).and_then(|uid| world.pods.by_uid(uid)))
        .and_then(|id| world.pods.get(&id));
    Involved { world, subject, cgroup, container, netns, sandbox, pod }
}

/// The fact for which a change about this subject waits before its event is sent.
pub(crate) fn wait_of(world: &World, subject: &Subject) -> Wait {
    let of_netns =
        subject.netns.and_then(|life| world.netns.get(life)).is_some_and(|row| row.sandbox.is_some());
    let of_cgroup =
        subject.cgroup.and_then(|key| world.cgroups.get(&key)).is_some_and(|row| row.pod.is_some());
    let of_pod = subject.pod.is_some() || subject.sandbox.is_some() || subject.container.is_some();
    if of_netns || of_cgroup || of_pod { Wait::Name } else { Wait::Nothing }
}

/// Whether only the UID of a pod is known so far, and its name may still be found.
pub(crate) fn may_be_named(world: &World, uid: &PodUid) -> bool {
    let pod = world.pods.by_uid(uid).and_then(|pod| world.pods.get(&pod));
    world.records.kubelet_expected && pod.is_some_and(|pod| pod.named.name.is_none() && pod.is_present())
}

fn sandbox_in<'a>(
    world: &'a World,
    subject: &'a Subject,
    container: Option<&'a Container>,
) -> Option<&'a ContainerId> {
    if let Some(id) = &subject.sandbox {
        return Some(id);
    }
    let row = container?;
    match row.role {
        Some(Role::Sandbox) => Some(&row.id),
        Some(Role::Container) | None => row.sandbox.as_ref().or_else(|| only_sandbox(world, row.pod?)),
    }
}

/// The only sandbox of a pod that has not stopped.
fn only_sandbox(world: &World, pod: u64) -> Option<&ContainerId> {
    let mut live = world.sandboxes.group(table::sandbox::Group::Pod(pod)).filter(|row| !row.is_stopped());
    let only = live.next()?;
    live.next().is_none().then_some(&only.id)
}

/// A container with what its runtime says of it.
fn reference(world: &World, row: &Container) -> ContainerRef {
    let described = world.beliefs.get(&row.id).map(|it| &it.described);
    ContainerRef {
        attempt: described.and_then(|it| it.attempt),
        image: described.and_then(|it| it.image.as_deref().map(Box::from)),
        ..ContainerRef::new(row.id.clone(), row.name.clone())
    }
}
