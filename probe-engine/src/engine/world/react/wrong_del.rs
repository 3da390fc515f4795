//! Notices DELs that cannot be right when the runtime begins them: later nothing shows which ADD was open by
//! then.
//!
//! What is noticed is kept with the attachment. After a reboot the sandbox itself has no row any more.

use std::net::IpAddr;

use crate::{
    engine::world::{
        EventContext, World, lookup,
        netns_path::{plain, process_of},
        table::{
            attachment::{ADDRESSES, Attachment, DelIn, Outcome, Runs, WrongDel},
            call::Call,
            process::State,
            sandbox::{Group, run::SIGNALLED},
        },
    },
    model::{
        change::Question,
        finding::{CniWrongDel, WrongDelForm},
        id::{ContainerId, TaskKey},
    },
};

/// Whose network namespace a DEL was given.
enum Owner {
    /// The sandbox's own, or that of no living sandbox.
    Right,
    Node,
    Other(ContainerId),
    /// The namespace of a process that is not known.
    Process(u32),
}

/// Keeps a DEL that cannot be right. It begins now, and the attachment does not count it yet.
pub(crate) fn note(world: &mut World, ctx: EventContext, call: &Call, id: &ContainerId, ifname: &str) {
    if call.call.command != "DEL" {
        return;
    }
    let before = (id.clone(), ifname.to_owned());
    if world.attachments.get(&before).is_none() && world.lists.is_marked() {
        // The ADD may be among the lost records, and with it whose namespace it was.
        return;
    }
    let plugin = &call.call.plugin;
    let netns = call.call.netns.as_deref().unwrap_or_default();
    let owner = owner_of(world, netns, id);
    let del = DelIn { at: ctx.at, plugin: plugin.clone(), path: netns.to_owned() };
    if let Owner::Process(pid) = owner {
        world.schedule_reap(ctx.at);
        world.attachments.row(ctx.at, id, ifname).del_in_process = Some(Box::new(del.clone()));
        world.ask(Question::ProcessNetns { pid });
    }
    if wrong_netns(world, ctx, (id, ifname), del, owner) {
        return;
    }
    let Some(row) = world.attachments.get(&before) else { return };
    let how = if row.is_adding() {
        WrongDelForm::AddOpen
    } else if row.adds().any(was_killed) {
        WrongDelForm::AddKilled
    } else {
        return;
    };
    let finding = CniWrongDel {
        how,
        plugin: plugin.clone(),
        ifname: ifname.to_owned(),
        count: 1,
        netns: None,
        addresses: addresses(std::iter::once(row)),
    };
    let by_restart = row.adds().filter(|runs| was_killed(runs)).all(Runs::was_cut_off);
    let by_restart = how == WrongDelForm::AddKilled && by_restart;
    let wrong = WrongDel { at: ctx.at, finding, other: None, by_restart };
    world.schedule_reap(ctx.at);
    world.attachments.row(ctx.at, id, ifname).wrong_del.get_or_insert_with(|| Box::new(wrong));
}

/// Takes in the network namespace of a process that a DEL named.
pub(crate) fn process_netns_found(world: &mut World, ctx: EventContext, process: TaskKey, inode: u32) {
    let waiting: Vec<(ContainerId, String)> = world
        .attachments
        .values()
        .filter(|row| {
            let asked = row.del_in_process.as_ref();
            asked.is_some_and(|asked| process_of(&asked.path) == Some(process.pid))
        })
        .map(|row| (row.container.clone(), row.ifname.clone()))
        .collect();
    for (id, ifname) in waiting {
        world.schedule_reap(ctx.at);
        let asked = world.attachments.row(ctx.at, &id, &ifname).del_in_process.take();
        let Some(asked) = asked else { continue };
        // A process that began after the DEL is another one.
        if process.start <= asked.at.0 {
            let owner = owner_of_inode(world, inode, &id);
            wrong_netns(world, ctx, (&id, &ifname), *asked, owner);
        }
    }
}

/// Keeps a DEL if its namespace is wrong. Returns whether it is.
fn wrong_netns(
    world: &mut World,
    ctx: EventContext,
    (id, ifname): (&ContainerId, &str),
    del: DelIn,
    owner: Owner,
) -> bool {
    let (how, other) = match owner {
        Owner::Right | Owner::Process(_) => return false,
        Owner::Node => (WrongDelForm::NodeNetns, None),
        Owner::Other(other) => (WrongDelForm::ForeignNetns, Some(other)),
    };
    let addresses = other.as_ref().map(|other| addresses(world.attachments.of(other))).unwrap_or_default();
    let finding = CniWrongDel {
        how,
        plugin: del.plugin,
        ifname: ifname.to_owned(),
        count: 1,
        netns: Some(del.path),
        addresses,
    };
    let wrong = WrongDel { at: del.at, finding, other, by_restart: false };
    world.schedule_reap(ctx.at);
    world.attachments.row(ctx.at, id, ifname).wrong_del.get_or_insert_with(|| Box::new(wrong));
    true
}

/// Returns whose namespace is at this path.
fn owner_of(world: &World, path: &str, id: &ContainerId) -> Owner {
    if let Some(pid) = process_of(path) {
        let process = world.processes.by_pid(pid);
        let process = process.filter(|row| row.state == State::Running && row.netns != 0);
        return process.map_or(Owner::Process(pid), |row| owner_of_inode(world, row.netns, id));
    }
    let bound = lookup::netns::at_path(world, path).and_then(|life| world.netns.get(life));
    let owner = bound.map_or(Owner::Right, |row| owner_of_inode(world, row.key.inode, id));
    if !matches!(owner, Owner::Right) || path.is_empty() {
        return owner;
    }
    // The namespace may not be known. Then the names of the files count.
    let mut other = None;
    for row in world.sandboxes.group(Group::NetnsPath(plain(path).into_owned())) {
        if row.id == *id {
            return Owner::Right;
        }
        if !row.is_stopped() {
            other.get_or_insert(row);
        }
    }
    other.map_or(Owner::Right, |row| Owner::Other(row.id.clone()))
}

fn owner_of_inode(world: &World, inode: u32, id: &ContainerId) -> Owner {
    let own = world.sandboxes.get(id);
    if inode == 0 || own.is_some_and(|row| row.network.is_host) {
        return Owner::Right;
    }
    if inode == world.node.host_netns {
        return Owner::Node;
    }
    let Some(netns) = world.netns.live(inode).filter(|row| row.proven) else { return Owner::Right };
    let is_own = own.is_some_and(|row| row.network.netns == Some(netns.life));
    let owner = netns.sandbox.as_ref().filter(|owner| *owner != id && !is_own);
    owner
        .filter(|owner| world.sandboxes.get(owner).is_some_and(|row| !row.is_stopped()))
        .map_or(Owner::Right, |owner| Owner::Other(owner.clone()))
}

/// Whether a signal ended the latest of these runs.
fn was_killed(runs: &Runs) -> bool {
    let is_failed = matches!(runs.outcome, Some(Outcome::Failed | Outcome::CutOff));
    is_failed && runs.code.is_some_and(|code| code >= SIGNALLED)
}

/// Returns the addresses that these attachments were given.
fn addresses<'a>(rows: impl Iterator<Item = &'a Attachment>) -> Vec<IpAddr> {
    rows.flat_map(|row| &row.leases).map(|lease| lease.address).take(ADDRESSES).collect()
}
