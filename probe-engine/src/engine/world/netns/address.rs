//! Addresses of network namespaces. The kernel reports an address more than once (IPv6: tentative, then settled). The
//! engine reports it once.

use super::table::Table;
use crate::{
    engine::{
        held::Subject,
        world::{
            EventContext, World,
            netns::{Address, Netns},
        },
    },
    model::{change::ChangeKind, fact, id::ContainerId},
};

/// At most this many addresses of one namespace are remembered. A process in the namespace can add any number.
const REMEMBERED: usize = 1024;

/// Whether an address is remembered, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Before,
    Now,
    /// There is no room, so it may be new or not.
    Not,
}

impl World {
    pub(in crate::engine::world) fn address_added(&mut self, ctx: EventContext, it: fact::Address) {
        self.prove_by_plugin(ctx, &it);
        let Some(life) = self.netns_seen(ctx, it.netns) else { return };
        self.lease_by_kernel(ctx, life, &it);
        if self.netns.keep_address(life, &it) != Kept::Before {
            self.tell_added(ctx, life, &it);
        }
    }

    fn tell_added(&mut self, ctx: EventContext, life: u64, it: &fact::Address) {
        let mut subject = self.netns_subject(life);
        if subject.sandbox.is_none() {
            subject.container = subject.container.or_else(|| self.cgroups.subject_of(&it.by).container);
        }
        let wait = self.wait_of(&subject);
        let what = ChangeKind::AddressAdded { address: it.address, ifname: it.ifname.clone() };
        self.tell(ctx, subject, wait, what);
    }

    /// A listing found an address. If hooks saw the making of the namespace, it was added since then. If they saw an ADD
    /// in it begin or end, that ADD most likely added it.
    pub(in crate::engine::world) fn address_found(&mut self, ctx: EventContext, it: fact::Address) {
        let Some(life) = self.netns_seen(ctx, it.netns) else { return };
        self.lease_by_kernel(ctx, life, &it);
        // The next listing finds again what found no room.
        let is_new = self.netns.keep_address(life, &it) == Kept::Now;
        let began = |row: &Netns| row.created_at.is_some() || self.was_added(row.sandbox.as_ref());
        if is_new && self.netns.get(life).is_some_and(began) {
            self.tell_added(ctx, life, &it);
        }
    }

    /// Whether an ADD for the sandbox ran at some time since the hooks were attached.
    fn was_added(&self, sandbox: Option<&ContainerId>) -> bool {
        let has_ended = |id| self.sandboxes.get(id).is_some_and(|row| row.network.found_add_ended);
        sandbox.is_some_and(|id| has_ended(id) || self.has_adds(id))
    }

    /// An address was removed, perhaps while the namespace is being torn down.
    pub(in crate::engine::world) fn address_removed(&mut self, ctx: EventContext, it: &fact::Address) {
        let same = |kept: &Address| kept.address == it.address && kept.ifname == it.ifname;
        let holder = self.netns.lives(it.netns.inode).rev().find(|row| row.addresses.iter().any(same));
        let Some(life) = holder.map(|row| row.life).or_else(|| self.holder_from_before(ctx, it)) else {
            return;
        };
        if let Some(row) = self.netns.rows.get_mut(&life) {
            row.addresses.retain(|kept| !same(kept));
        }
        self.lease_left_kernel(life, Some(it.address.address));
        let subject = self.netns_subject(life);
        let wait = self.wait_of(&subject);
        let what = ChangeKind::AddressRemoved { address: it.address, ifname: it.ifname.clone() };
        self.tell(ctx, subject, wait, what);
    }

    /// The namespace of an address that was never reported. Only a namespace that existed before the agent can have
    /// one.
    fn holder_from_before(&mut self, ctx: EventContext, it: &fact::Address) -> Option<u64> {
        let last = self.netns.lives(it.netns.inode).next_back().map(|row| row.life);
        let life = last.or_else(|| self.netns_seen(ctx, it.netns))?;
        self.netns.get(life).filter(|row| row.created_at.is_none() && row.is_live()).map(|row| row.life)
    }

    /// Reports that these addresses ended with their namespace.
    pub(in crate::engine::world) fn addresses_gone(
        &mut self,
        ctx: EventContext,
        subject: &Subject,
        gone: Vec<Address>,
    ) {
        for Address { address, ifname, .. } in gone {
            let wait = self.wait_of(subject);
            self.tell(ctx, subject.clone(), wait, ChangeKind::AddressRemoved { address, ifname });
        }
    }

    /// If a plugin adds an address in a namespace other than the node's, that namespace belongs to the sandbox for
    /// which the plugin works.
    ///
    /// A call from inside a container proves nothing. It gives a guess if the runtime itself has a call open for the
    /// same sandbox and the same namespace, and if no container made the namespace.
    fn prove_by_plugin(&mut self, ctx: EventContext, it: &fact::Address) {
        if it.netns.inode == self.node.host_netns {
            return;
        }
        let Some(call) = self.call_around(it.by.key).or_else(|| self.call_around(it.by.parent)) else {
            return;
        };
        let delegated = call.call.delegated;
        let believed = !delegated || self.is_backed(call);
        let Some(sandbox) = call.container.clone().filter(|_| believed) else { return };
        let Some(life) = self.netns_seen(ctx, it.netns) else { return };
        let creator = self.netns.get(life).map(|row| row.creator.cgroup);
        if delegated && creator.is_some_and(|cgroup| self.cgroups.is_in_container(cgroup)) {
            return;
        }
        self.claim(ctx, life, &sandbox, !delegated);
    }
}

impl Table {
    /// Stores the address, if there is room for it.
    fn keep_address(&mut self, life: u64, it: &fact::Address) -> Kept {
        let Some(row) = self.rows.get_mut(&life) else { return Kept::Before };
        let known =
            row.addresses.iter_mut().find(|kept| kept.address == it.address && kept.ifname == it.ifname);
        if let Some(known) = known {
            known.flags = it.flags;
            return Kept::Before;
        }
        if row.addresses.len() >= REMEMBERED {
            return Kept::Not;
        }
        let address =
            Address { address: it.address, ifname: it.ifname.clone(), ifindex: it.ifindex, flags: it.flags };
        row.addresses.push(address);
        Kept::Now
    }
}
