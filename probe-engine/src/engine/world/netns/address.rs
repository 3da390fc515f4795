//! Addresses of network namespaces. The kernel tells of one more than once (IPv6: tentative, then settled); it is
//! told once.

use crate::{
    engine::{
        held::Subject,
        world::{EventContext, World, netns::Address},
    },
    model::{change::ChangeKind, fact},
};

/// So many addresses of one namespace are remembered. Who runs in it can add any number.
const REMEMBERED: usize = 1024;

impl World {
    pub(in crate::engine::world) fn address_added(&mut self, ctx: EventContext, it: fact::Address) {
        self.prove_by_plugin(ctx, &it);
        let Some(life) = self.netns_seen(ctx, it.netns) else { return };
        self.lease_by_kernel(ctx, life, &it);
        if self.keep_address(life, &it) {
            let mut subject = self.netns_subject(life);
            if subject.sandbox.is_none() {
                subject.container = subject.container.or_else(|| self.subject_of(&it.by).container);
            }
            let wait = self.wait_of(&subject);
            self.tell(
                ctx,
                subject,
                wait,
                ChangeKind::AddressAdded { address: it.address, ifname: it.ifname },
            );
        }
    }

    pub(in crate::engine::world) fn address_found(&mut self, ctx: EventContext, it: fact::Address) {
        if let Some(life) = self.netns_seen(ctx, it.netns) {
            self.lease_by_kernel(ctx, life, &it);
            self.keep_address(life, &it);
        }
    }

    /// Also while the namespace is being taken apart.
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

    /// A namespace whose beginning was not seen can have addresses that nobody told of.
    fn holder_from_before(&mut self, ctx: EventContext, it: &fact::Address) -> Option<u64> {
        let last = self.netns.lives(it.netns.inode).next_back().map(|row| row.life);
        let life = last.or_else(|| self.netns_seen(ctx, it.netns))?;
        self.netns.get(life).filter(|row| row.created_at.is_none() && row.is_live()).map(|row| row.life)
    }

    /// A namespace is gone, and these of its addresses with it.
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

    /// Whether it is new.
    fn keep_address(&mut self, life: u64, it: &fact::Address) -> bool {
        let Some(row) = self.netns.rows.get_mut(&life) else { return false };
        let known =
            row.addresses.iter_mut().find(|kept| kept.address == it.address && kept.ifname == it.ifname);
        if let Some(known) = known {
            known.flags = it.flags;
            return false;
        }
        if row.addresses.len() < REMEMBERED {
            let address = Address {
                address: it.address,
                ifname: it.ifname.clone(),
                ifindex: it.ifindex,
                flags: it.flags,
            };
            row.addresses.push(address);
        }
        true
    }

    /// A plugin that gives an address in a namespace other than the node's works for that namespace's sandbox.
    ///
    /// What a container says it does for a sandbox proves nothing. As a guess it serves while the runtime itself has a
    /// call open for the same sandbox and the same namespace, and only of a namespace that was not made in a container.
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
        if delegated && creator.is_some_and(|cgroup| self.in_container(cgroup)) {
            return;
        }
        self.claim(ctx, life, &sandbox, !delegated);
    }
}
