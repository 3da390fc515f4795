//! The pod, sandbox and container of a change. They are looked up when the change's event is sent, because more is
//! known then than when the change happened.

use crate::{
    engine::{
        held::{Subject, Wait},
        world::{World, container::Container, sandbox},
    },
    model::{
        change::{CgroupRef, ContainerRef, Context, PodRef},
        fact::{NameSource, Role},
        id::{ContainerId, PodUid},
    },
};

impl World {
    /// The context of a subject. `true`: everything that can still become known about the subject is in it.
    pub(super) fn context(&self, subject: &Subject) -> (Context, bool) {
        let cgroup = subject.cgroup.and_then(|key| self.cgroups.get(&key));
        let container = subject.container.as_ref().or_else(|| cgroup.and_then(|row| row.container.as_ref()));
        let container = container.and_then(|id| self.containers.get(id));
        let netns = subject.netns.and_then(|life| self.netns.get(life));
        let sandbox =
            self.sandbox_in(subject, container).or_else(|| netns.and_then(|row| row.sandbox.as_ref()));
        let row = sandbox.and_then(|id| self.sandboxes.get(id));
        let pod = subject
            .pod
            .or_else(|| row.and_then(|row| row.pod))
            .or_else(|| container.and_then(|row| row.pod))
            .or_else(|| cgroup.and_then(|row| row.pod.as_ref()).and_then(|uid| self.pods.by_uid(uid)))
            .and_then(|id| self.pods.get(&id));
        let by_row = pod.map(|row| PodRef {
            namespace: row.named.namespace.clone(),
            name: row.named.name.clone(),
            uid: row.named.uid.clone(),
            source: Some(row.source),
        });
        let by_call = subject.named.as_ref().map(|name| PodRef {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            uid: name.uid.clone(),
            source: Some(NameSource::CniArgs),
        });
        let pod_ref = match (by_row, by_call) {
            (Some(row), Some(call)) if row.name.is_none() => Some(call),
            (row, call) => row.or(call),
        };
        // Only the path of a cgroup names this pod.
        let by_path = || {
            let uid = cgroup?.pod.clone()?;
            Some(PodRef { uid: Some(uid), source: Some(NameSource::CgroupPath), ..PodRef::default() })
        };
        let settled = match &pod_ref {
            Some(pod) => pod.name.is_some(),
            // The subject may concern no pod: a container without a pod, or a CNI call without one.
            None => match container {
                Some(row) => row.role.is_some() || !row.question.is_open,
                None => netns.is_none() || sandbox.is_some(),
            },
        };
        let key = subject.cgroup.or_else(|| container.and_then(|row| row.cgroup));
        let context = Context {
            sandbox: sandbox.cloned(),
            container: container
                .filter(|row| row.role != Some(Role::Sandbox))
                .map(|row| ContainerRef { id: row.id.clone(), name: row.name.clone() }),
            netns: netns
                .or_else(|| row.and_then(|row| row.network.netns).and_then(|life| self.netns.get(life)))
                .map(|row| row.key),
            cgroup: key
                .and_then(|key| self.cgroups.get(&key))
                .map(|row| CgroupRef { key: row.key, path: row.path.clone() }),
            pod: pod_ref.or_else(by_path),
        };
        (context, settled)
    }

    /// The fact for which a change about this subject waits before its event is sent.
    pub(super) fn wait_of(&self, subject: &Subject) -> Wait {
        let of_netns =
            subject.netns.and_then(|life| self.netns.get(life)).is_some_and(|row| row.sandbox.is_some());
        let of_cgroup =
            subject.cgroup.and_then(|key| self.cgroups.get(&key)).is_some_and(|row| row.pod.is_some());
        let of_pod = subject.pod.is_some() || subject.sandbox.is_some() || subject.container.is_some();
        if of_netns || of_cgroup || of_pod { Wait::Name } else { Wait::Nothing }
    }

    /// Whether only the UID of a pod is known so far, and its name may still be found.
    pub(super) fn may_be_named(&self, uid: &PodUid) -> bool {
        let pod = self.pods.by_uid(uid).and_then(|pod| self.pods.get(&pod));
        self.records.kubelet_expected && pod.is_some_and(|pod| pod.named.name.is_none() && pod.is_present())
    }

    fn sandbox_in<'a>(
        &'a self,
        subject: &'a Subject,
        container: Option<&'a Container>,
    ) -> Option<&'a ContainerId> {
        if let Some(id) = &subject.sandbox {
            return Some(id);
        }
        let row = container?;
        match row.role {
            Some(Role::Sandbox) => Some(&row.id),
            Some(Role::Container) | None => row.sandbox.as_ref().or_else(|| self.only_sandbox(row.pod?)),
        }
    }

    /// The only sandbox of a pod that has not stopped.
    fn only_sandbox(&self, pod: u64) -> Option<&ContainerId> {
        let mut live = self.sandboxes.group(sandbox::Group::Pod(pod)).filter(|row| !row.is_stopped());
        let only = live.next()?;
        live.next().is_none().then_some(&only.id)
    }
}
