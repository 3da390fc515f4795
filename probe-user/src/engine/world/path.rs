//! What a cgroup's path says: which pod, which container, and whether it lies below a container's own directory.
//!
//! Both drivers of the kubelet and every runtime leave their marks in the names alone. The first `kubepods`
//! counts: what a container makes below its own directory can look like a pod and is none.

use probe_common::name::{CONTAINER_PREFIXES, PODS_PREFIX};

use crate::engine::id::{ContainerId, PodUid};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub pod: Option<PodUid>,
    pub container: Option<ContainerId>,
    /// It lies below the container's own directory, or below the pod's and is no container's.
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
            outside.step(part);
        }
        outside
    }

    /// Below the root of all pods: an optional level for the quality of service, the pod, the container.
    fn in_pods<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        let mut place = Self::default();
        for part in parts {
            if place.pod.is_none() {
                place.pod = pod_uid(part);
            } else {
                place.step(part);
            }
        }
        place
    }

    fn step(&mut self, part: &str) {
        if self.container.is_some() {
            self.below = true;
        } else {
            self.container = container_id(part);
            self.below = self.container.is_none() && self.pod.is_some();
        }
    }

    /// The pod's own directory.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        self.pod.is_some() && self.container.is_none() && !self.below
    }
}

/// `kubepods`, `kubepods.slice`, or with the name of the kubelet's own root before it (`kubelet-kubepods.slice`).
fn is_pods_root(part: &str) -> bool {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    name.strip_suffix(PODS_PREFIX).is_some_and(|before| before.is_empty() || before.ends_with('-'))
}

/// `pod<uid>`, or `kubepods-besteffort-pod<uid>.slice` with underscores for dashes.
fn pod_uid(part: &str) -> Option<PodUid> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (before, uid) = name.rsplit_once("pod")?;
    if before.is_empty() || before.ends_with('-') { PodUid::parse(uid) } else { None }
}

/// `cri-containerd-<id>.scope` and its like, or the bare id. conmon's scope (`crio-conmon-<id>.scope`) is no
/// container, since what follows the prefix is then no id.
fn container_id(part: &str) -> Option<ContainerId> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = CONTAINER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { ContainerId::parse(id) } else { None }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::engine::id::{ContainerId, PodUid};

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
