//! Decodes a ring's records into observations. Only here do the kernel's bytes become text.
//!
//! **Invariant:** nothing is looked up, and no record can cause a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use probe_common::{
    event::{self, Event, Header, WireError, address, cni, flag},
    id::{CgroupKey, NetnsKey, TaskKey},
};

use crate::model::{
    fact::{
        Address, Caller, Cgroup, CniCalled, CniVariables, Executed, Exited, Fact, Family, Listened, Listener,
        Observation, Origin, Signaled, Task,
    },
    id::{Subnet, TICK},
    time::Timestamp,
};

/// Decodes one record of a ring.
pub fn decode(bytes: &[u8]) -> Result<Observation, WireError> {
    Event::parse(bytes).map(|event| observation(&event))
}

/// Returns the observation of a record.
#[must_use]
pub(crate) fn observation(event: &Event<'_>) -> Observation {
    let header = event.header();
    let mut origin = Origin::Kernel;
    let fact = match event {
        Event::Exec(body, tail) => Fact::Executed(executed(body, tail)),
        Event::CniCall(body, tail) => {
            let host = header.flags & flag::HOST != 0;
            if !host {
                origin = Origin::Delegated;
            }
            Fact::CniCalled(CniCalled {
                task: current(header),
                filename: text(tail.filename),
                caller: (body.caller != TaskKey::default())
                    .then(|| Caller { key: key(body.caller), comm: text(body.caller_comm.bytes()) }),
                host,
                variables: variables(tail),
                env_truncated: header.flags & flag::ENV_TRUNCATED != 0,
            })
        }
        Event::Exit(body) => {
            Fact::Exited(Exited { task: current(header), status: body.status, class: body.class })
        }
        Event::Signal(body) => Fact::Signaled(signaled(body)),
        Event::OomKill(body) => Fact::OomKilled(signaled(body)),
        Event::NetnsCreated(body) => {
            let end_unseen = header.flags & flag::END_UNSEEN != 0;
            Fact::NetnsCreated { netns: netns(body.netns), by: current(header), end_unseen }
        }
        Event::NetnsDropped(body) => Fact::NetnsDropped { netns: netns(body.netns), by: current(header) },
        Event::NetnsFreed(body) => Fact::NetnsFreed { netns: netns(body.netns) },
        Event::AddressAdded(body) => Fact::AddressAdded(address(body)),
        Event::AddressRemoved(body) => Fact::AddressRemoved(address(body)),
        Event::CgroupCreated(body, path) => {
            Fact::CgroupCreated { cgroup: cgroup(body, path), by: current(header) }
        }
        Event::CgroupRemoved(body, path) => {
            Fact::CgroupRemoved { cgroup: cgroup(body, path), by: current(header) }
        }
        Event::CgroupReleased(body, path) => Fact::CgroupReleased { cgroup: cgroup(body, path) },
        Event::CgroupAttached(body, path) => {
            Fact::CgroupEntered { cgroup: cgroup(body, path), member: key(body.member), by: current(header) }
        }
        Event::CgroupEmptied(body, path) => Fact::CgroupEmptied { cgroup: cgroup(body, path) },
        Event::Listen(body) => Fact::Listened(Listened {
            task: current(header),
            container: CgroupKey::new(header.hierarchy, body.container),
            socket: Listener {
                port: body.port,
                family: if body.family == address::IPV6 { Family::Ipv6 } else { Family::Ipv4 },
            },
        }),
    };
    Observation { at: Timestamp(header.at), origin, fact }
}

fn current(header: &Header) -> Task {
    task(&header.task, header.hierarchy)
}

fn task(from: &event::Task, hierarchy: u32) -> Task {
    Task {
        key: key(from.key()),
        tid: from.tid,
        parent: key(from.parent_key()),
        comm: text(from.comm.bytes()),
        cgroup: CgroupKey::new(hierarchy, from.cgroup),
        netns: from.netns,
    }
}

/// Rounds the start down to whole ticks, as `/proc` does, so that a process has the same key from every
/// source.
fn key(exact: TaskKey) -> TaskKey {
    TaskKey::new(exact.pid, exact.start - exact.start % TICK)
}

/// Drops the padding, which is not part of the identity and is not kept in recordings.
fn netns(key: NetnsKey) -> NetnsKey {
    NetnsKey::new(key.inode, key.cookie)
}

fn executed(body: &event::Exec, tail: &event::exec::Text<'_>) -> Executed {
    Executed {
        task: current(&body.header),
        filename: text(tail.filename),
        argv: if tail.argv.is_empty() { Vec::new() } else { tail.args().map(text).collect() },
        argv_total: body.argv_total,
        class: body.class,
        ns_pid: body.ns_pid,
        pid_ns: body.pid_ns,
        mnt_ns: body.mnt_ns,
    }
}

fn variables(tail: &cni::Variables<'_>) -> CniVariables {
    CniVariables {
        command: tail.get(cni::COMMAND).map(text).unwrap_or_default(),
        container_id: tail.get(cni::CONTAINERID).map(text),
        netns: tail.get(cni::NETNS).map(text),
        ifname: tail.get(cni::IFNAME).map(text),
        args: tail.get(cni::ARGS).map(whole_pairs).map(text),
        path: tail.get(cni::PATH).map(text),
        traceparent: tail.get(cni::TRACEPARENT).map(text),
        tracestate: tail.get(cni::TRACESTATE).map(text),
    }
}

/// Returns the whole pairs of `CNI_ARGS`: the kernel side cuts a value that is longer than its field.
fn whole_pairs(args: &[u8]) -> &[u8] {
    let last = args.iter().rposition(|byte| *byte == b';');
    if args.len() < cni::NAMES[cni::ARGS].1 {
        args
    } else {
        args.get(..last.unwrap_or(0)).unwrap_or_default()
    }
}

fn signaled(body: &event::Signal) -> Signaled {
    Signaled {
        target: task(&body.target, body.header.hierarchy),
        signal: body.signal,
        code: body.code,
        sender: current(&body.header),
    }
}

fn address(body: &event::Address) -> Address {
    let [a, b, c, d, ..] = body.address;
    let ip = if body.family == address::IPV6 {
        IpAddr::V6(Ipv6Addr::from(body.address))
    } else {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    Address {
        netns: netns(body.netns),
        address: Subnet { address: ip, prefix: body.prefix },
        ifname: text(body.ifname.bytes()),
        ifindex: body.ifindex,
        flags: body.ifa_flags,
        scope: body.scope,
        by: current(&body.header),
    }
}

fn cgroup(body: &event::Cgroup, path: &[u8]) -> Cgroup {
    Cgroup {
        key: CgroupKey::new(body.cgroup.hierarchy, body.cgroup.id),
        path: text(path),
        level: body.level,
        nested: body.header.flags & flag::NESTED != 0,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
