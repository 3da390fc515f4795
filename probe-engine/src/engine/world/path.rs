//! Reads a cgroup's path: its pod, its container, and whether it lies below a container's own directory.
//!
//! The path's names are the only sign that the kubelet's drivers and the runtimes leave. Only the first
//! `kubepods` counts: a container can make directories below its own that look like a pod.
//!
//! A runtime with the cgroupfs driver, under a kubelet with the systemd driver, uses its whole argument as
//! the name of one directory: `kubepods-besteffort-podUID.slice:cri-containerd:ID`. That directory stands at
//! the root or beside the runtime's own.

use probe_common::name::{PODS_PREFIX, container_of};

use crate::model::id::{ContainerId, PodUid};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub pod: Option<PodUid>,
    pub container: Option<ContainerId>,
    /// It lies below the container's own directory, or below the pod's directory and is no container's.
    pub below: bool,
}

impl Place {
    /// Reads a path from the hierarchy's root.
    #[must_use]
    pub fn read(path: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let mut outside = Self::default();
        while let Some(part) = parts.next() {
            if is_pods_root(part) {
                return Self::in_pods(parts);
            }
            if is_pods_slice(part) {
                return Self::in_pods([part].into_iter().chain(parts));
            }
            outside.step(part);
        }
        outside
    }

    /// Reads the directories below the root of all pods: an optional level for the quality of service, the
    /// pod, the container. The pod and the container can be one directory.
    fn in_pods<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        let mut place = Self::default();
        for part in parts {
            if place.pod.is_some() {
                place.step(part);
                continue;
            }
            let (slice, in_one) = part.split_once(':').map_or((part, false), |(slice, _)| (slice, true));
            place.pod = pod_uid(slice);
            if in_one {
                place.step(part);
            }
        }
        place
    }

    fn step(&mut self, part: &str) {
        if self.container.is_some() {
            self.below = true;
        } else {
            self.container = container_of(part).and_then(ContainerId::parse);
            self.below = self.container.is_none() && self.pod.is_some();
        }
    }

    /// Whether this is the pod's own directory.
    #[must_use]
    pub(crate) fn is_pod(&self) -> bool {
        self.pod.is_some() && self.container.is_none() && !self.below
    }
}

/// Below this, users other than root may make cgroups with names of their choice.
const SESSIONS: &str = "/user.slice/";

/// Whether a container at this path may be one of the node's own, as a kubelet has with RKE1: it is no pod's,
/// and in no user's session.
#[must_use]
pub fn may_be_of_node(path: &str) -> bool {
    let is_of_pods = path.split('/').any(|part| is_pods_root(part) || is_pods_slice(part));
    !is_of_pods && !path.contains(SESSIONS)
}

/// Whether this is the root of all pods: `kubepods`, `kubepods.slice`, or one with the kubelet's own root
/// before it (`kubelet-kubepods.slice`).
fn is_pods_root(part: &str) -> bool {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    name.strip_suffix(PODS_PREFIX).is_some_and(|before| before.is_empty() || before.ends_with('-'))
}

/// Whether this is the slice of a pod, alone or before a colon, outside the root of all pods.
fn is_pods_slice(part: &str) -> bool {
    let slice = part.split(':').next().unwrap_or(part);
    let above = slice.strip_suffix(".slice").and_then(|name| name.rsplit_once("-pod"));
    above.is_some_and(|(above, _uid)| above.split('-').any(|name| name == PODS_PREFIX))
        && pod_uid(slice).is_some()
}

/// The UID in `pod<uid>`, or in `kubepods-besteffort-pod<uid>.slice`, which has underscores for dashes.
fn pod_uid(part: &str) -> Option<PodUid> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (before, uid) = name.rsplit_once("pod")?;
    if before.is_empty() || before.ends_with('-') { PodUid::parse(uid) } else { None }
}

#[cfg(test)]
mod tests {
    use super::{Place, may_be_of_node};
    use crate::model::id::{ContainerId, PodUid};

    const UID: &str = "11111111-2222-3333-4444-555555555555";

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn place(pod: Option<&str>, container: Option<char>, below: bool) -> Place {
        Place {
            pod: pod.map(|uid| PodUid::parse(uid).expect("a UID")),
            container: container.map(|digit| ContainerId::parse(&id(digit)).expect("an id")),
            below,
        }
    }

    #[track_caller]
    fn check(path: &str, expected: &Place) {
        assert_eq!(&Place::read(path), expected, "{path}");
    }

    #[test]
    fn a_container_of_the_node_is_no_pod_s_and_no_user_s() {
        let (a, under) = (id('a'), UID.replace('-', "_"));
        for (path, expected) in [
            (format!("/docker/{a}"), true),
            (format!("/system.slice/docker-{a}.scope/init"), true),
            (format!("/podruntime/kubelet/{a}"), true),
            // Containers of pods. What belongs to all pods together is none of the node's either.
            (format!("/kubepods/burstable/pod{UID}/{a}"), false),
            (format!("/kubepods/burstable/pod1/{a}"), false),
            (format!("/kubepods/{a}"), false),
            (format!("/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-{a}.scope"), false),
            (format!("/kubelet-kubepods.slice/{a}"), false),
            (format!("/kubepods-burstable-pod{under}.slice:cri-containerd:{a}"), false),
            // On a node that is itself a container.
            (format!("/docker/{a}/kubelet/kubepods/besteffort/pod{UID}/{a}"), false),
            (format!("/docker/{a}/user.slice/user-0.slice/{a}"), false),
            (format!("/user.slice/user-0.slice/{a}"), false),
            (format!("/user.slice/user-1000.slice/user@1000.service/{a}"), false),
        ] {
            assert_eq!(may_be_of_node(&path), expected, "{path}");
        }
    }

    #[test]
    fn both_drivers_name_pod_and_container() {
        let a = id('a');
        let under = UID.replace('-', "_");
        let both = place(Some(UID), Some('a'), false);
        check(&format!("/kubepods/besteffort/pod{UID}/{a}"), &both);
        check(&format!("/kubepods/pod{UID}/{a}"), &both);
        for scope in ["cri-containerd-", "crio-", "docker-"] {
            let slice = format!("kubepods-burstable-pod{under}.slice");
            check(&format!("/kubepods.slice/kubepods-burstable.slice/{slice}/{scope}{a}.scope"), &both);
        }
        check(&format!("/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-{a}.scope"), &both);
        check(&format!("/kubepods/burstable/pod{UID}/crio-{a}"), &both);
        check(&format!("/kubepods/burstable/pod{UID}"), &place(Some(UID), None, false));
        assert!(Place::read(&format!("/kubepods/pod{UID}")).is_pod());
    }

    #[test]
    fn a_static_pods_uid_is_a_hash() {
        let hash = "0123456789abcdef0123456789abcdef";
        check(&format!("/kubepods/burstable/pod{hash}/{}", id('b')), &place(Some(hash), Some('b'), false));
        check(&format!("/kubepods.slice/kubepods-pod{hash}.slice"), &place(Some(hash), None, false));
    }

    #[test]
    fn the_levels_above_pods_are_none() {
        for path in [
            "/",
            "/kubepods",
            "/kubepods/besteffort",
            "/kubepods.slice/kubepods-besteffort.slice",
            "/system.slice",
        ] {
            check(path, &Place::default());
        }
    }

    #[test]
    fn conmon_is_no_container() {
        let path = format!("/kubepods/besteffort/pod{UID}/crio-conmon-{}.scope", id('c'));
        check(&path, &place(Some(UID), None, true));
        check(&format!("/machine.slice/libpod-conmon-{}.scope", id('c')), &Place::default());
    }

    #[test]
    fn a_slice_that_the_runtime_took_for_a_name_is_pod_and_container() {
        let (a, under) = (id('a'), UID.replace('-', "_"));
        let both = place(Some(UID), Some('a'), false);
        for runtime in ["cri-containerd", "crio", "docker"] {
            for slice in ["kubepods-besteffort", "kubepods", "kubelet-kubepods-burstable"] {
                let name = format!("{slice}-pod{under}.slice:{runtime}:{a}");
                for above in [
                    "",
                    "/system.slice",
                    "/system.slice/containerd.service",
                    "/kubepods",
                    "/kubepods.slice/kubepods-besteffort.slice",
                ] {
                    check(&format!("{above}/{name}"), &both);
                    check(&format!("{above}/{name}/init.scope"), &place(Some(UID), Some('a'), true));
                }
            }
        }
        let slice = format!("kubepods-besteffort-pod{under}.slice");
        let inner = format!("/kubepods.slice/kubepods-besteffort.slice/{slice}/{slice}:cri-containerd:{a}");
        check(&inner, &both);
        // Docker puts the container's directory into one with the slice's name.
        check(&format!("/{slice}/{a}"), &both);
        assert!(Place::read(&format!("/{slice}")).is_pod());
        // The first is a static pod's. The others are of no pod.
        let hash = "0123456789abcdef0123456789abcdef";
        check(
            &format!("/kubepods-burstable-pod{hash}.slice:cri-containerd:{a}"),
            &place(Some(hash), Some('a'), false),
        );
        check(&format!("/user.slice:nerdctl:{a}"), &place(None, Some('a'), false));
        check(&format!("/system.slice/{slice}:other:{a}"), &place(Some(UID), None, true));
        check(&format!("/my-pod{under}.slice"), &Place::default());
    }

    #[test]
    fn containers_without_a_pod() {
        let plain = place(None, Some('d'), false);
        for path in
            ["/system.slice/docker-D.scope", "/docker/D", "/machine.slice/libpod-D.scope", "/default/D"]
        {
            check(&path.replace('D', &id('d')), &plain);
        }
        check(&format!("/docker/{}/init.scope", id('d')), &place(None, Some('d'), true));
    }

    #[test]
    fn a_node_that_is_itself_a_container_keeps_its_pods() {
        let node = id('e');
        let own = place(Some(UID), Some('f'), false);
        check(&format!("/docker/{node}/kubelet/kubepods/besteffort/pod{UID}/{}", id('f')), &own);
        let under = UID.replace('-', "_");
        let slices = format!(
            "kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{under}.slice"
        );
        check(
            &format!(
                "/system.slice/docker-{node}.scope/kubelet.slice/{slices}/cri-containerd-{}.scope",
                id('f')
            ),
            &own,
        );
    }

    #[test]
    fn a_pod_that_a_container_pretends_to_hold_is_the_containers_own() {
        let path = format!(
            "/kubepods/pod{UID}/{}/docker/{}/kubepods/pod0123456789abcdef0123456789abcdef",
            id('1'),
            id('2')
        );
        check(&path, &place(Some(UID), Some('1'), true));
        check(&format!("/kubepods/pod{UID}/system.slice"), &place(Some(UID), None, true));
    }
}
