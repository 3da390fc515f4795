//! Network namespaces: created, last reference dropped, freed.
//!
//! `copy_net_ns` makes every one of them. The last reference goes through `__put_net` (exit, last socket) or,
//! inlined there, through `netns_put` (last mount or file descriptor, so every one that a CNI plugin was
//! given). `proc_free_inum` ends the teardown; it gets only an inode number, of namespaces of every type.

use aya_ebpf::{
    macros::{fentry, fexit, kprobe, kretprobe, map},
    maps::LruHashMap,
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use probe_common::{
    event::{self, kind},
    id::NetnsKey,
    netns::{Known, UNKNOWN},
    table,
    tally::Ring,
};

use crate::{
    emit::{self, Owner},
    kernel::{net::Net, task::Task},
    reader_page,
};

/// Network namespaces by inode, from creation or drop until they are freed.
#[map]
static NETNS: LruHashMap<u32, Known> = LruHashMap::with_max_entries(table::NETNS, 0);

pub(super) const CLONE_NEWNET: u64 = 0x4000_0000;

/// The highest error number, as a pointer: a value above it is an error (`IS_ERR`).
const MAX_ERRNO: u64 = 4095;

/// Returns who made a network namespace, if that was seen and is still known.
#[inline(always)]
pub(crate) fn maker(netns: NetnsKey) -> Option<Owner> {
    // SAFETY: as in `dropped`.
    let known = unsafe { NETNS.get(netns.inode) }.copied()?;
    if known.cookie == netns.cookie && known.maker != UNKNOWN { Some(Owner::at(known.maker)) } else { None }
}

#[fexit(function = "copy_net_ns")]
pub(crate) fn fx_copy_net_ns(ctx: FExitContext) -> i32 {
    let flags: u64 = ctx.arg(0);
    // The result follows the three arguments; `ret` would need a helper of 5.17.
    let net: u64 = ctx.arg(3);
    if flags & CLONE_NEWNET != 0 && net <= u64::MAX - MAX_ERRNO {
        created(Net::at(net), 0);
    }
    0
}

/// The flags are not available here: without `CLONE_NEWNET` it returns what the current task already has.
#[kretprobe]
pub(crate) fn kr_copy_net_ns(ctx: RetProbeContext) -> u32 {
    let net: u64 = ctx.ret();
    if net <= u64::MAX - MAX_ERRNO && Net::at(net) != Task::current().net() {
        created(Net::at(net), 0);
    }
    0
}

#[fentry(function = "__put_net")]
pub(crate) fn fe_put_net(ctx: FEntryContext) -> i32 {
    put_last(Net::at(ctx.arg(0)));
    0
}

#[kprobe]
pub(crate) fn kp_put_net(ctx: ProbeContext) -> u32 {
    if let Some(net) = ctx.arg(0) {
        put_last(Net::at(net));
    }
    0
}

#[fentry(function = "netns_put")]
pub(crate) fn fe_netns_put(ctx: FEntryContext) -> i32 {
    put(Net::of_ns_common(ctx.arg(0)));
    0
}

#[kprobe]
pub(crate) fn kp_netns_put(ctx: ProbeContext) -> u32 {
    if let Some(ns) = ctx.arg(0) {
        put(Net::of_ns_common(ns));
    }
    0
}

#[inline(always)]
fn put(net: Net) {
    if net.references() == 1 {
        put_last(net);
    }
}

/// The initial namespace never ends, whatever its counter reads.
#[inline(always)]
fn put_last(net: Net) {
    if !net.is_initial() {
        dropped(net.key());
    }
}

#[fentry(function = "proc_free_inum")]
pub(crate) fn fe_free_inum(ctx: FEntryContext) -> i32 {
    freed(ctx.arg(0));
    0
}

#[kprobe]
pub(crate) fn kp_free_inum(ctx: ProbeContext) -> u32 {
    if let Some(inode) = ctx.arg(0) {
        freed(inode);
    }
    0
}

#[inline(always)]
pub(super) fn created(net: Net, flags: u16) {
    if reader_page::is_away() {
        return;
    }
    let netns = net.key();
    // An inode number that is given again is free: if the end of its previous owner is not reported yet, it
    // is now.
    freed(netns.inode);
    let maker = Owner::of(Task::current());
    let ring = maker.ring();
    // Without room for it, a container's excess may reach the lifecycle ring at its end.
    let known = Known { cookie: netns.cookie, maker: maker.number(), dropped: 0, ring: ring as u32 };
    emit::keep(&NETNS, netns.inode, known);
    tell(ring, kind::NETNS_CREATED, flags, netns);
}

/// Reports a drop once, even if the kernel calls both functions.
#[inline(always)]
fn dropped(netns: NetnsKey) {
    if reader_page::is_away() {
        return;
    }
    // SAFETY: a map's value stays readable while the program runs; a torn copy could only misname the ring.
    let known = unsafe { NETNS.get(netns.inode) }.copied();
    let (ring, maker) = match known {
        Some(known) if known.cookie == netns.cookie => {
            if known.dropped == 1 {
                return;
            }
            (ring_of(known), known.maker)
        }
        _ => (emit::ring_for_unknown_netns(), UNKNOWN),
    };
    // Without room for it, the end of its teardown is not reported.
    emit::keep(&NETNS, netns.inode, Known { cookie: netns.cookie, maker, dropped: 1, ring: ring as u32 });
    tell(ring, kind::NETNS_DROPPED, 0, netns);
}

/// Like `dropped`, for a drop that is found later: the inode may be the next namespace's already, whose
/// beginning has then reported this end.
#[inline(always)]
pub(super) fn dropped_late(netns: NetnsKey) {
    // SAFETY: as in `dropped`.
    let known = unsafe { NETNS.get(netns.inode) }.copied();
    if known.is_none_or(|known| known.cookie == netns.cookie) {
        dropped(netns);
    }
}

/// Like `freed`, for an end that is found later: the inode may be the next namespace's already, whose
/// beginning has then reported this end.
#[inline(always)]
pub(super) fn freed_late(netns: NetnsKey) {
    // SAFETY: as in `dropped`.
    if let Some(known) = unsafe { NETNS.get(netns.inode) }.copied()
        && known.cookie == netns.cookie
        && known.dropped == 1
    {
        freed(netns.inode);
    }
}

/// Reports an end only for an inode that is known to be a network namespace's. If two CPUs drop the last two
/// references together, both can see two: then the drop is reported here.
#[inline(always)]
fn freed(inode: u32) {
    // SAFETY: as in `dropped`.
    let Some(known) = unsafe { NETNS.get(inode) }.copied() else { return };
    if reader_page::is_away() {
        return;
    }
    // It is gone already only if another entry needed the room.
    let _ = NETNS.remove(inode);
    let netns = NetnsKey::new(inode, known.cookie);
    let ring = ring_of(known);
    if known.dropped == 0 {
        tell(ring, kind::NETNS_DROPPED, 0, netns);
    }
    tell(ring, kind::NETNS_FREED, 0, netns);
}

#[inline(always)]
fn ring_of(known: Known) -> Ring {
    emit::ring(u64::from(known.ring))
}

#[inline(always)]
fn tell(ring: Ring, kind: u16, flags: u16, netns: NetnsKey) {
    netns_send(ring as u64, u64::from(kind), u64::from(flags), u64::from(netns.inode), netns.cookie);
}

/// A function of its own, so that its record is not on the stack while `container` is called: both share 512
/// bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn netns_send(ring: u64, kind: u64, flags: u64, inode: u64, cookie: u64) -> u64 {
    let header = emit::header::<event::Netns>(kind as u16, flags as u16);
    let netns = NetnsKey::new(inode as u32, cookie);
    emit::fixed(emit::ring(ring), kind as u16, event::Netns { header, netns });
    0
}
