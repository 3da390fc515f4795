//! `rtmsg_ifa(event, ifa, ...)` and `__ipv6_ifa_notify(event, ifp)`: an address came or went.
//!
//! Both are also called when an address merely changes (its lifetime, duplicate detection done), so what has
//! been reported is remembered by the struct's address.

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, kprobe, map},
    maps::LruHashMap,
    programs::{FEntryContext, ProbeContext},
};
use probe_common::{
    event::{
        self,
        address::{IPV4, IPV6},
        kind,
    },
    table,
    tally::Ring,
};

use super::netns;
use crate::{
    emit::{self, Owner},
    kernel::{address::IfAddress, net::Net, read, task::Task},
    reader_page,
};

/// Addresses that have been reported, by the address of their struct, and what they were.
#[map]
static ADDRESSES: LruHashMap<u64, u64> = LruHashMap::with_max_entries(table::ADDRESSES, 0);

const RTM_NEWADDR: u32 = 20;
const RTM_DELADDR: u32 = 21;

/// IPv6: a change, or the address is there but duplicate detection is still to come (`IFA_F_TENTATIVE`).
const CHANGED: u32 = 0;
const IFA_F_TENTATIVE: u32 = 0x40;

#[fentry(function = "rtmsg_ifa")]
pub(crate) fn fe_rtmsg_ifa(ctx: FEntryContext) -> i32 {
    tell::<IPV4>(ctx.arg(0), second(&ctx));
    0
}

#[kprobe]
pub(crate) fn kp_rtmsg_ifa(ctx: ProbeContext) -> u32 {
    if let (Some(event), Some(ifa)) = (ctx.arg(0), ctx.arg(1)) {
        tell::<IPV4>(event, ifa);
    }
    0
}

#[fentry(function = "__ipv6_ifa_notify")]
pub(crate) fn fe_ifa6_notify(ctx: FEntryContext) -> i32 {
    tell::<IPV6>(ctx.arg(0), second(&ctx));
    0
}

#[kprobe]
pub(crate) fn kp_ifa6_notify(ctx: ProbeContext) -> u32 {
    if let (Some(event), Some(ifp)) = (ctx.arg(0), ctx.arg(1)) {
        tell::<IPV6>(event, ifp);
    }
    0
}

/// Returns the traced function's second argument as a plain number: loaded from the context it is, for the
/// verifier, a pointer of the kernel's own type, which none of our functions may take.
#[inline(always)]
fn second(ctx: &FEntryContext) -> u64 {
    read(ctx.as_ptr() as u64, const { size_of::<u64>() as u32 })
}

#[inline(always)]
fn tell<const FAMILY: u8>(event: u32, at: u64) {
    if reader_page::is_away() {
        return;
    }
    let seen = IfAddress::of::<FAMILY>(at);
    let kind = match event {
        RTM_DELADDR => {
            // It is absent if the address came before the hook.
            let _ = ADDRESSES.remove(at);
            kind::ADDRESS_REMOVED
        }
        RTM_NEWADDR => kind::ADDRESS_ADDED,
        CHANGED if seen.flags & IFA_F_TENTATIVE != 0 => kind::ADDRESS_ADDED,
        _ => return,
    };
    let net = seen.device.net();
    if kind == kind::ADDRESS_ADDED {
        let netns = net.key();
        let what = fingerprint(&seen.address) ^ u64::from(netns.inode) ^ netns.cookie.rotate_left(32);
        // SAFETY: a map's value stays readable while the program runs.
        if unsafe { ADDRESSES.get(at) }.copied() == Some(what) {
            return;
        }
        // Without room for it, a change of the address would be reported as its addition.
        emit::keep(&ADDRESSES, at, what);
    }
    let ring = emit::ring(address_ring(net.address()));
    match FAMILY {
        IPV4 => address_send_v4(ring as u64, u64::from(kind), at),
        _ => address_send_v6(ring as u64, u64::from(kind), at),
    };
}

/// A function of its own, so that its record is not on the stack while the ring is chosen: both share 512
/// bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn address_send_v4(ring: u64, kind: u64, at: u64) -> u64 {
    send::<IPV4>(ring, kind as u16, at)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn address_send_v6(ring: u64, kind: u64, at: u64) -> u64 {
    send::<IPV6>(ring, kind as u16, at)
}

#[inline(always)]
fn send<const FAMILY: u8>(ring: u64, kind: u16, at: u64) -> u64 {
    let seen = IfAddress::of::<FAMILY>(at);
    let record = event::Address {
        header: emit::header::<event::Address>(kind, 0),
        netns: seen.device.net().key(),
        ifname: seen.device.name(),
        address: seen.address,
        ifindex: seen.device.index(),
        ifa_flags: seen.flags,
        family: FAMILY,
        prefix: seen.prefix,
        scope: seen.scope,
        _pad: [0; 5],
    };
    emit::fixed(emit::ring(ring), kind, record);
    0
}

/// Identifies the address: the struct's memory may be another address's by now, without the end of the first
/// having been seen.
#[inline(always)]
fn fingerprint(address: &[u8; 16]) -> u64 {
    let [high, low]: [u64; 2] = zerocopy::transmute!(*address);
    high.rotate_left(1) ^ low
}

/// Returns the ring for the address of a network namespace that came or went.
///
/// Whoever does it pays. If that is the node itself or a worker, the namespace's maker pays, or the namespace
/// itself if the node made it; all namespaces with an unknown maker share one budget.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn address_ring(net: u64) -> u64 {
    let net = Net::at(net);
    let sender = Owner::of(Task::current());
    let ring = if sender != Owner::NODE {
        sender.ring()
    } else if net.is_initial() {
        Ring::Lifecycle
    } else {
        match netns::maker(net.key()) {
            None => emit::shared_ring(Owner::UNKNOWN_NETNS),
            Some(Owner::NODE) => Owner::netns(net.inode()).ring(),
            Some(maker) => maker.ring(),
        }
    };
    ring as u64
}
