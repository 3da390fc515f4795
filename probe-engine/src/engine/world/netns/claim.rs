//! Finds the sandbox of a network namespace. `CNI_NETNS` is a path, and the engine cannot look up the file behind it.
//! Four things show the namespace: the mount table, the namespaces that the caller made just before, an answer about the
//! file, which is asked for where those are several, and the plugin's own work in a namespace.

use std::time::Duration;

use crate::{
    engine::world::{
        EventContext, World,
        netns::{Group, Netns},
        netns_path::{is_same, plain, process_of},
        presence::Voucher,
        sandbox,
    },
    model::{
        change::Question,
        id::{ContainerId, TaskKey},
    },
};

/// A runtime makes a sandbox's namespace right before it calls the first plugin.
const JUST_MADE: Duration = Duration::from_secs(10);

impl World {
    /// A CNI call named this path as the network namespace of a sandbox. `caller`: the process that called the plugin.
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
            (row.creator.key == caller || row.creator.parent == caller)
                && row
                    .created_at
                    .is_some_and(|created| created <= ctx.at && ctx.at.since(created) <= JUST_MADE)
        };
        let mut lately = self.netns.group(Group::Unclaimed).filter(made_by_caller);
        let found = (lately.next().map(|row| row.life), lately.next().is_some());
        drop(lately);
        match found {
            (Some(life), false) => self.claim(ctx, life, sandbox, false),
            // If the caller made several, as where many pods start at once, it can be any. The file shows which, and later
            // the plugin's work.
            (Some(_), true) if process_of(path).is_none() && !path.is_empty() => {
                self.ask(Question::Netns { path: path.to_owned() });
            }
            (Some(_), true) | (None, _) => {}
        }
    }

    /// Claims the namespace at this path for the sandbox. Returns whether there is one.
    pub(in crate::engine::world) fn claim_by_path(
        &mut self,
        ctx: EventContext,
        sandbox: &ContainerId,
        path: &str,
    ) -> bool {
        if path.is_empty() {
            return false;
        }
        if !self.sandboxes.netns_named(sandbox, path) {
            return false;
        }
        let Some(life) = self.netns_at(path) else { return false };
        self.claim(ctx, life, sandbox, true);
        true
    }

    /// The living namespace at a path: bound to it, or that of the process whose `/proc` path it is.
    pub(in crate::engine::world) fn netns_at(&self, path: &str) -> Option<u64> {
        let row = match process_of(path) {
            Some(pid) => {
                let inode = self.processes.by_pid(pid).map(|process| process.netns);
                inode.filter(|inode| *inode != self.node.host_netns).and_then(|inode| self.netns.live(inode))
            }
            None => {
                let path = Group::Path(plain(path).into_owned());
                self.netns.group(path).find(|row| row.is_live())
            }
        };
        row.map(|row| row.life)
    }

    /// A namespace was found with these mounts. A sandbox may wait for the namespace at one of these paths.
    pub(in crate::engine::world) fn claim_by_mounts(&mut self, ctx: EventContext, life: u64) {
        let Some(row) = self.netns.get(life) else { return };
        let paths = row.mounts.iter().map(|mount| sandbox::Group::NetnsPath(plain(mount).into_owned()));
        let waiting = paths.filter_map(|path| {
            let first = self.sandboxes.group(path).find(|sandbox| !sandbox.is_stopped());
            first.map(|sandbox| sandbox.id.clone())
        });
        let sandbox = waiting.min();
        if let Some(sandbox) = sandbox {
            self.claim(ctx, life, &sandbox, true);
            self.sandboxes.vouch(&sandbox, Voucher::Mount, ctx.at);
        }
    }

    /// Joins a namespace and a sandbox. A proven claim stays; a guess is replaced.
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
        let Some(netns) = self.netns.get(life) else { return };
        let is_bound = |path: &String| netns.mounts.iter().any(|mount| is_same(mount, path));
        let is_known = netns.sandbox.as_ref() == Some(sandbox)
            && (netns.proven || !proven)
            && path.as_ref().is_none_or(|path| !proven || process_of(path).is_some() || is_bound(path));
        if is_known {
            self.sandbox_netns_created(life);
            self.sandbox_has_netns(ctx.at, sandbox, life);
            self.watch_claimed(ctx.at, life);
            return;
        }
        let Some(netns) = self.netns.rows.get_mut(&life) else { return };
        let previous_owner = netns.sandbox.replace(sandbox.clone()).filter(|_| taken);
        netns.proven |= proven;
        if let Some(path) = path
            && proven
            && process_of(&path).is_none()
            && !netns.mounts.iter().any(|mount| is_same(mount, &path))
        {
            netns.mounts.push(path);
        }
        if let Some(previous_owner) = previous_owner {
            self.sandboxes.had_no_netns(&previous_owner);
        }
        self.sandbox_netns_created(life);
        self.sandbox_has_netns(ctx.at, sandbox, life);
        self.watch_claimed(ctx.at, life);
    }
}
