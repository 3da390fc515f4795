//! The last column: the details of a change besides its name and pod.

use std::time::Duration;

use crate::{
    model::{
        change::{Change, ChangeKind, CniCall, ContainerRef, Context, End, Process},
        fact::{Loss, Origin},
        id::ContainerId,
    },
    sink::{
        escape::{escaped, short_key},
        render::phase,
        span::span,
    },
    words::name::signal_number,
};

#[must_use]
pub(crate) fn detail(change: &Change) -> String {
    let mut text = said(&change.what, &change.context);
    if change.late {
        text += " (late)";
    }
    match change.origin {
        Origin::Kernel | Origin::Agent => {}
        other => text += &format!(" [{}]", other.into_str()),
    }
    text
}

fn said(what: &ChangeKind, context: &Context) -> String {
    match what {
        ChangeKind::ProcessExec { process, filename, argv, argv_cut } => {
            let mut text = named(process);
            // The first argument mostly repeats the file's name.
            text += &format!(" {}", escaped(filename));
            for argument in argv.iter().skip(1) {
                text += &format!(" {}", escaped(argument));
            }
            text + if *argv_cut { " …" } else { "" }
        }
        ChangeKind::ProcessExit { process, end } => format!("{} {}", named(process), ended(end)),
        ChangeKind::CniStarted { call } => called(call),
        ChangeKind::CniFinished { call, end, duration } => {
            let end = end.as_ref().map_or_else(|| "ended unseen".to_owned(), ended);
            format!("{} {end} in {}", called(call), span(*duration))
        }
        ChangeKind::NetnsCreated { by } => format!("{} by {}", netns(context), named(by)),
        ChangeKind::NetnsDestroyed { by: Some(by) } => format!("{} by {}", netns(context), named(by)),
        ChangeKind::NetnsDestroyed { by: None } => netns(context),
        ChangeKind::NetnsFreed { teardown: Some(teardown) } => {
            format!("{} torn down in {}", netns(context), span(*teardown))
        }
        ChangeKind::NetnsFreed { teardown: None } => netns(context),
        ChangeKind::CgroupCreated { by } | ChangeKind::CgroupRemoved { by } => {
            format!("{} by {}", cgroup(context), named(by))
        }
        ChangeKind::CgroupEmptied => cgroup(context),
        ChangeKind::AddressAdded { address, ifname } | ChangeKind::AddressRemoved { address, ifname } => {
            format!("{address} on {} in {}", escaped(ifname), netns(context))
        }
        ChangeKind::SandboxCreated => sandbox(context),
        ChangeKind::SandboxReady { since_created } => {
            let after = since_created.map(|since| format!(" after {}", span(since))).unwrap_or_default();
            format!("{}{after}", sandbox(context))
        }
        ChangeKind::SandboxStopped { why } => {
            format!("{} {}", sandbox(context), why.into_str().replace('_', " "))
        }
        ChangeKind::ContainerStarted { process } => format!("{} {}", container(context), named(process)),
        ChangeKind::ContainerListening { process, socket, since_started } => {
            let container = container(context);
            let socket = phase::socket(*socket);
            format!("{container} {} on {socket} after {}", named(process), span(*since_started))
        }
        ChangeKind::ContainerExited { process, end, ran } => {
            let text = format!("{} {} {}", container(context), named(process), ended(end));
            match ran {
                Some(ran) => format!("{text} after {}", span(*ran)),
                None => text,
            }
        }
        ChangeKind::PodFirstSeen => match context.pod.as_ref().and_then(|pod| pod.uid.as_ref()) {
            Some(uid) => format!("uid {uid}"),
            None => String::new(),
        },
        ChangeKind::PodStarted(start) => phase::summary(start),
        ChangeKind::PodGone { lived } => format!("lived {}", span(*lived)),
        ChangeKind::FindingOpened(it) | ChangeKind::FindingConfirmed(it) | ChangeKind::FindingClosed(it) => {
            format!("{} ({})", it.kind.explain().summary(), short_key(&it.key))
        }
        // Nothing shows when the loss began.
        ChangeKind::Gap { what: Loss::State, lasted: Some(Duration::ZERO), .. } => {
            "what the last agent kept is lost".to_owned()
        }
        ChangeKind::Gap { what: Loss::State, lasted: Some(lasted), .. } => {
            format!("what the last agent kept of the last {} is lost", span(*lasted))
        }
        ChangeKind::Gap { what: Loss::NetlinkSocket, lasted: Some(lasted), .. } => {
            format!("no agent heard netlink for {}", span(*lasted))
        }
        ChangeKind::Gap { lasted: Some(lasted), .. } => format!("no agent ran for {}", span(*lasted)),
        ChangeKind::Gap { what, count, lasted: None } => {
            format!("{count} lost: {}", what.into_str().replace('_', " "))
        }
    }
}

/// A process as `comm[pid]`.
#[must_use]
pub(crate) fn named(process: &Process) -> String {
    format!("{}[{}]", escaped(&process.comm), process.key.pid)
}

fn called(call: &CniCall) -> String {
    let CniCall { command, plugin, netns, ifname, called_by, .. } = call;
    let mut text = format!("{} {}", escaped(command), escaped(plugin));
    if let Some(ifname) = ifname {
        text += &format!(" {}", escaped(ifname));
    }
    match netns.as_deref() {
        Some("") => text += " no netns",
        Some(netns) => text += &format!(" {}", escaped(netns.rsplit('/').next().unwrap_or(netns))),
        None => {}
    }
    if let Some(by) = called_by {
        text += &format!(" from {}", escaped(by));
    }
    text
}

/// How a process ended, and who ended it.
#[must_use]
pub(crate) fn ended(end: &End) -> String {
    let mut text = match end.signal {
        Some(number) => match signal_number(number) {
            Some(name) => format!("killed by {name}"),
            None => format!("killed by signal {number}"),
        },
        None => format!("exit {}", end.code),
    };
    if end.oom {
        text += " (out of memory)";
    }
    if let Some(killer) = &end.killer {
        text += &format!(" from {}", named(killer));
    }
    text
}

fn netns(context: &Context) -> String {
    context.netns.map_or_else(|| "netns ?".to_owned(), |netns| format!("netns {}", netns.inode))
}

fn cgroup(context: &Context) -> String {
    context.cgroup.as_ref().map_or_else(|| "cgroup ?".to_owned(), |cgroup| escaped(&cgroup.path).into_owned())
}

fn sandbox(context: &Context) -> String {
    context.sandbox.as_ref().map_or("?", ContainerId::short).to_owned()
}

fn container(context: &Context) -> String {
    match &context.container {
        Some(ContainerRef { name: Some(name), id, .. }) => format!("{} ({})", escaped(name), id.short()),
        Some(ContainerRef { name: None, id, .. }) => id.short().to_owned(),
        None => "?".to_owned(),
    }
}
