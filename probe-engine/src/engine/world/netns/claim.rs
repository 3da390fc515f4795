//! Which network namespace is whose. `CNI_NETNS` is a path, and what is behind it is not looked up: the mount
//! table, the caller's doings just before, and the plugin's own work in the namespace tell.

use std::{borrow::Cow, time::Duration};

use crate::{
    engine::world::{EventContext, World, netns::Netns, presence::Voucher},
    model::id::{ContainerId, TaskKey},
};

/// A runtime makes a sandbox's namespace right before it calls the first plugin.
const JUST_MADE: Duration = Duration::from_secs(10);

impl World {
    /// A sandbox's namespace is the one at this path. `caller`: who called the plugin.
    pub(in crate::engine::world) fn claim_at_call(
        &mut self,
        ctx: EventContext,
        sandbox: &ContainerId,
        path: &str,
        caller: TaskKey,
    ) {
        if self.claim_by_path(ctx, sandbox, path)
            || self.sandboxes.get(sandbox).is_none_or(|row| row.network.netns.is_some())
        {
            return;
        }
        let made_by_caller = |row: &&Netns| {
            row.is_live()
                && row.sandbox.is_none()
                && row.mounts.is_empty()
                && (row.creator.key == caller || row.creator.parent == caller)
                && row
                    .created_at
                    .is_some_and(|created| created <= ctx.at && ctx.at.since(created) <= JUST_MADE)
        };
        let mut lately = self.netns.values().filter(made_by_caller);
        // Of two that were made side by side it could be either; the plugin's work will tell.
        if let (Some(life), None) = (lately.next().map(|row| row.life), lately.next()) {
            self.claim(ctx, life, sandbox, false);
        }
    }

    /// Whether the path alone is enough.
    pub(in crate::engine::world) fn claim_by_path(
        &mut self,
        ctx: EventContext,
        sandbox: &ContainerId,
        path: &str,
    ) -> bool {
        if path.is_empty() {
            return false;
        }
        if !self.sandbox_netns_named(sandbox, path) {
            return false;
        }
        let Some(life) = self.netns_at(path) else { return false };
        self.claim(ctx, life, sandbox, true);
        true
    }

    /// The living namespace at a path: where it is bound, or where a process stands for it.
    pub(in crate::engine::world) fn netns_at(&self, path: &str) -> Option<u64> {
        let row = match process_of_path(path) {
            Some(pid) => {
                let inode = self.processes.by_pid(pid).map(|process| process.netns);
                inode.filter(|inode| *inode != self.node.host_netns).and_then(|inode| self.netns.live(inode))
            }
            None => {
                let bound =
                    |row: &&Netns| row.is_live() && row.mounts.iter().any(|mount| is_same(mount, path));
                self.netns.values().find(bound)
            }
        };
        row.map(|row| row.life)
    }

    /// A namespace was found with these mounts: a sandbox may have been waiting for it.
    pub(in crate::engine::world) fn claim_by_mounts(&mut self, ctx: EventContext, life: u64) {
        let Some(row) = self.netns.get(life) else { return };
        let waits = |path: &str| row.mounts.iter().any(|mount| is_same(mount, path));
        let sandbox = self
            .sandboxes
            .values()
            .find(|sandbox| !sandbox.is_stopped() && sandbox.network.netns_path.as_deref().is_some_and(waits))
            .map(|sandbox| sandbox.id.clone());
        if let Some(sandbox) = sandbox {
            self.claim(ctx, life, &sandbox, true);
            self.sandboxes.vouch(&sandbox, Voucher::Mount, ctx.at);
        }
    }

    /// Joins a namespace and a sandbox. What is proven stays; a guess gives way.
    pub(in crate::engine::world) fn claim(
        &mut self,
        ctx: EventContext,
        life: u64,
        sandbox: &ContainerId,
        proven: bool,
    ) {
        let Some(row) = self.sandboxes.get(sandbox) else { return };
        let (before, path) = (row.network.netns, row.network.netns_path.clone());
        let Some(netns) = self.netns.get(life) else { return };
        let taken = netns.sandbox.as_ref().is_some_and(|other| other != sandbox);
        if taken && (netns.proven || !proven) {
            return;
        }
        if let Some(before) = before.filter(|before| *before != life)
            && let Some(old) = self.netns.rows.get_mut(&before)
        {
            if old.proven && old.is_live() {
                return;
            }
            if old.is_live() {
                old.sandbox = None;
            }
        }
        let Some(netns) = self.netns.rows.get_mut(&life) else { return };
        let previous_owner = netns.sandbox.replace(sandbox.clone()).filter(|_| taken);
        netns.proven |= proven;
        if let Some(path) = path
            && proven
            && process_of_path(&path).is_none()
            && !netns.mounts.iter().any(|mount| is_same(mount, &path))
        {
            netns.mounts.push(path);
        }
        if let Some(previous_owner) = previous_owner {
            self.sandbox_had_no_netns(&previous_owner);
        }
        self.sandbox_netns_created(life);
        self.sandbox_has_netns(ctx.at, sandbox, life);
        self.watch_claimed(life);
    }
}

/// `/var/run` is `/run` on every node met.
pub(in crate::engine) fn plain(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/var/run/") {
        Some(rest) => Cow::Owned(format!("/run/{rest}")),
        None => Cow::Borrowed(path),
    }
}

fn is_same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// The pid of `/proc/PID/ns/net`.
fn process_of_path(path: &str) -> Option<u32> {
    path.strip_prefix("/proc/")?.strip_suffix("/ns/net")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_same, process_of_path};

    #[test]
    fn a_path_is_the_same_under_both_names_of_run() {
        assert!(is_same("/var/run/netns/cni-1", "/run/netns/cni-1"));
        assert!(!is_same("/var/run/netns/cni-1", "/run/netns/cni-2"));
    }

    #[test]
    fn a_process_can_stand_for_its_namespace() {
        assert_eq!(process_of_path("/proc/42/ns/net"), Some(42));
        for other in ["/proc/x/ns/net", "/proc/42/ns/mnt", "/run/netns/a", "/proc/99999999999/ns/net", ""] {
            assert_eq!(process_of_path(other), None, "{other}");
        }
    }
}
