//! The addresses of a network namespace.

use crate::{
    engine::world::table::netns::{Address, rows::Table},
    model::{
        fact::{self, Task},
        id::NetnsKey,
    },
};

/// At most this many addresses of one namespace are remembered. A process in the namespace can add any
/// number.
pub(crate) const REMEMBERED: usize = 1024;

/// Whether an address is remembered, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Before,
    Now,
    /// There is no room, so it may be new or not.
    Not,
}

impl Table {
    /// Stores the address, if there is room for it.
    pub(in crate::engine::world) fn keep_address(&mut self, life: u64, it: &fact::Address) -> Kept {
        let Some(row) = self.rows.get_mut(&life) else { return Kept::Before };
        let known = row.addresses.iter_mut().find(|kept| kept.address == it.address && kept.is_on(it));
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

    /// Corrects the copy of an address that a listing found, if it was only a guess of files. Returns whether
    /// the namespace was known to have the address. A copy on another interface, which netlink knows, is a
    /// copy of its own.
    pub(in crate::engine::world) fn correct_known(&mut self, life: u64, it: &fact::Address) -> bool {
        let Some(row) = self.rows.get_mut(&life) else { return true };
        let known = row.addresses.iter_mut().filter(|kept| kept.address.address == it.address.address);
        let mut is_known = false;
        for kept in known {
            is_known |= kept.is_on(it) || kept.ifindex == 0 || it.ifindex == 0;
            if kept.is_on(it) {
                kept.flags = it.flags;
            }
            if kept.ifindex == 0 && it.ifindex != 0 {
                (kept.address, kept.ifindex, kept.flags) = (it.address, it.ifindex, it.flags);
                kept.ifname.clone_from(&it.ifname);
            }
        }
        is_known
    }
}

impl Address {
    /// Returns the address as one that is gone, by nobody that a hook or netlink saw.
    pub(in crate::engine::world) fn unheard(&self, netns: NetnsKey) -> fact::Address {
        fact::Address {
            netns,
            address: self.address,
            ifname: self.ifname.clone(),
            ifindex: self.ifindex,
            flags: self.flags,
            scope: 0,
            by: Task::default(),
        }
    }

    /// Whether both are on one interface, which may have got another name meanwhile.
    pub(in crate::engine::world) fn is_on(&self, it: &fact::Address) -> bool {
        if self.ifindex != 0 && it.ifindex != 0 {
            self.ifindex == it.ifindex
        } else {
            self.ifname == it.ifname
        }
    }
}
