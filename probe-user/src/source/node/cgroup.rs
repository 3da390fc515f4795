//! The layout of a node's cgroup hierarchies: cgroup v2 alone, v1 alone, or both (hybrid).
//!
//! Each hierarchy numbers its directories by itself. So all parts of the agent must use the same hierarchy:
//! the one in which the container runtime makes its directories.

use crate::source::host::{HostRoot, ReadError, lines, mountinfo};

/// One hierarchy and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// `cgroup_root.hierarchy_id`; 0 for cgroup v2.
    pub id: u32,
    /// Its controllers; none for v2. `name=NAME` for a v1 hierarchy that has only a name.
    pub controllers: Vec<String>,
    /// The directory on the node at which its root is mounted.
    pub mount: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// cgroup v2 alone.
    Unified,
    /// v1 hierarchies for the controllers, and cgroup v2 beside them.
    Hybrid,
    /// cgroup v1 alone.
    Legacy,
}

/// All mounted hierarchies of a node, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub hierarchies: Vec<Hierarchy>,
}

impl Layout {
    /// Reads the layout that the node's init sees. Other processes may have mounts of their own.
    pub fn read(root: &HostRoot) -> Result<Self, ReadError> {
        Ok(Self::parse(&root.read("/proc/1/cgroup")?, &root.read("/proc/1/mountinfo")?))
    }

    /// Parses `/proc/PID/cgroup` (cgroups(7)), which names every hierarchy with its id, and
    /// `/proc/PID/mountinfo`.
    #[must_use]
    pub(crate) fn parse(cgroup: &[u8], mountinfo: &[u8]) -> Self {
        let mounts = mountinfo::parse(mountinfo);
        let mut hierarchies: Vec<Hierarchy> = lines(cgroup)
            .filter_map(|line| {
                let mut fields = line.splitn(3, ':');
                let id: u32 = fields.next()?.parse().ok()?;
                let controllers: Vec<String> =
                    fields.next()?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                let mount = mounts.iter().find(|mount| holds(mount, id, &controllers))?;
                Some(Hierarchy { id, controllers, mount: mount.point.clone() })
            })
            .collect();
        hierarchies.sort_by_key(|hierarchy| hierarchy.id);
        Self { hierarchies }
    }

    /// Returns the mode; `None` if no hierarchy is mounted.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        let legacy = self.hierarchies.iter().any(|hierarchy| hierarchy.id != 0);
        match (self.unified().is_some(), legacy) {
            (true, false) => Some(Mode::Unified),
            (true, true) => Some(Mode::Hybrid),
            (false, true) => Some(Mode::Legacy),
            (false, false) => None,
        }
    }

    /// Returns the cgroup v2 hierarchy.
    #[must_use]
    pub(crate) fn unified(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.id == 0)
    }

    /// Returns the hierarchy with this controller.
    #[must_use]
    pub(crate) fn controller(&self, name: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.controllers.iter().any(|own| own == name))
    }

    /// Returns the hierarchy in which the runtime makes its directories: the first for which `used` is true,
    /// or the first of all if no container exists yet.
    ///
    /// cgroup v2 is tried first. On a hybrid node runc (since 1.0), crun and systemd make their directories
    /// there too, and the kernel reads its ids at the lowest cost. Older runtimes use only the v1
    /// controllers.
    ///
    /// A container that is being made or removed is in some hierarchies and not in others. So a later
    /// hierarchy is chosen only if several tries agree, with `pause` in between.
    #[must_use]
    pub fn choose(&self, used: impl Fn(&Hierarchy) -> bool, pause: impl Fn()) -> Option<&Hierarchy> {
        const TRIES: usize = 4;
        let first = self.candidates().next()?;
        let mut chosen = first;
        for attempt in 0..TRIES {
            if attempt > 0 {
                pause();
            }
            chosen = self.candidates().find(|hierarchy| used(hierarchy)).unwrap_or(first);
            if chosen.id == first.id {
                break;
            }
        }
        Some(chosen)
    }

    /// Returns the hierarchies in which a runtime may make its directories, the likeliest first.
    fn candidates(&self) -> impl Iterator<Item = &Hierarchy> {
        let v1 = ["memory", "pids", "cpu", "name=systemd"].iter().filter_map(|name| self.controller(name));
        self.unified().into_iter().chain(v1).chain(&self.hierarchies)
    }
}

/// Returns whether `mount` shows the whole hierarchy.
///
/// In a cgroup namespace, which a container has, the root of the mount is shown with as many `/..` as the
/// namespace's root is below the hierarchy's (cgroup_namespaces(7)).
fn holds(mount: &mountinfo::Mount, id: u32, controllers: &[String]) -> bool {
    if !mount.root.split('/').all(|step| matches!(step, "" | "..")) {
        return false;
    }
    match mount.fs_type.as_str() {
        "cgroup2" => id == 0,
        "cgroup" => {
            id != 0 && mount.options.split(',').any(|option| controllers.iter().any(|own| own == option))
        }
        _ => false,
    }
}

/// Returns the path of a process's cgroup in one hierarchy, from `/proc/PID/cgroup`.
#[must_use]
pub(crate) fn path_in(hierarchy: u32, cgroup: &[u8]) -> Option<String> {
    paths(cgroup).find(|(id, _)| *id == hierarchy).map(|(_, path)| path)
}

/// Returns the path of a process in each hierarchy, by its id, from `/proc/PID/cgroup` (cgroups(7)).
pub(crate) fn paths(cgroup: &[u8]) -> impl Iterator<Item = (u32, String)> {
    lines(cgroup).filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let id: u32 = fields.next()?.parse().ok()?;
        let path = fields.nth(1)?;
        // A zombie keeps the name of its cgroup after the directory was removed.
        Some((id, path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::{Hierarchy, Layout, Mode, path_in};

    const V2: &str = "0::/init.scope\n";
    const V2_MOUNTS: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "12:memory:/\n4:cpu,cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n";
    const HYBRID_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /docker/1 /elsewhere rw - cgroup cgroup rw,memory\n\
        36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn v2_alone() {
        let layout = Layout::parse(V2.as_bytes(), V2_MOUNTS.as_bytes());
        assert_eq!(layout.mode(), Some(Mode::Unified));
        assert_eq!(layout.choose(|_| false, || ()).map(|h| h.mount.as_str()), Some("/sys/fs/cgroup"));
    }

    #[test]
    fn a_namespace_of_ones_own_hides_no_mount() {
        let mounts = V2_MOUNTS.replace(" / ", " /../../.. ");
        let layout = Layout::parse(b"0::/../../../init.scope\n", mounts.as_bytes());
        assert_eq!(layout.unified().map(|h| h.mount.as_str()), Some("/sys/fs/cgroup"));
        let part = V2_MOUNTS.replace(" / ", " /../kubepods.slice ");
        assert_eq!(Layout::parse(V2.as_bytes(), part.as_bytes()).mode(), None);
    }

    #[test]
    fn hybrid_goes_where_the_containers_are() {
        let layout = Layout::parse(HYBRID.as_bytes(), HYBRID_MOUNTS.as_bytes());
        assert_eq!(layout.mode(), Some(Mode::Hybrid));
        assert_eq!(layout.controller("cpuacct").map(|h| h.id), Some(4));
        let chosen =
            |used: &[u32]| layout.choose(|h| used.contains(&h.id), || ()).map(|h| (h.id, h.mount.as_str()));
        assert_eq!(chosen(&[]), Some((0, "/sys/fs/cgroup/unified")));
        assert_eq!(chosen(&[0, 12]), Some((0, "/sys/fs/cgroup/unified")));
        assert_eq!(chosen(&[1, 12]), Some((12, "/sys/fs/cgroup/memory")));
    }

    #[test]
    fn a_container_that_is_being_removed_does_not_choose_the_hierarchy() {
        let layout = Layout::parse(HYBRID.as_bytes(), HYBRID_MOUNTS.as_bytes());
        let looks = Cell::new(0);
        let chosen = |last: u32| {
            looks.set(0);
            let used = |h: &Hierarchy| h.id == 12 && looks.get() < last;
            layout.choose(used, || looks.set(looks.get() + 1)).map(|h| h.id)
        };
        assert_eq!((chosen(1), looks.get()), (Some(0), 1));
        assert_eq!((chosen(u32::MAX), looks.get()), (Some(12), 3));
    }

    #[test]
    fn v1_alone_has_no_unified_hierarchy() {
        let layout = Layout::parse(HYBRID.as_bytes(), HYBRID_MOUNTS.replace("cgroup2", "none").as_bytes());
        assert_eq!(layout.mode(), Some(Mode::Legacy));
        assert_eq!(layout.choose(|_| false, || ()).map(|h| h.id), Some(12));
        assert_eq!(Layout::default().mode(), None);
    }

    #[test]
    fn a_process_has_one_path_in_each() {
        let text = b"12:memory:/kubepods/a:b\n0::/x (deleted)\n";
        assert_eq!(path_in(12, text).as_deref(), Some("/kubepods/a:b"));
        assert_eq!(path_in(0, text).as_deref(), Some("/x"));
        assert_eq!(path_in(3, text), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(cgroup: Vec<u8>, mountinfo: Vec<u8>) {
            assert!(Layout::parse(&cgroup, &mountinfo).hierarchies.len() <= cgroup.len());
            assert!(path_in(0, &cgroup).is_none_or(|path| path.len() <= 3 * cgroup.len()));
        }
    }
}
