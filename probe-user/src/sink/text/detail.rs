//! The last column: what a change says beyond its name and its pod.

use crate::{
    model::{
        change::{Change, CniCall, ContainerRef, Context, End, Process, What},
        fact::Origin,
        id::ContainerId,
    },
    sink::{escape::escaped, phase, span::span, verdict::summary, word},
};

#[must_use]
pub fn detail(change: &Change) -> String {
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

fn said(what: &What, context: &Context) -> String {
    match what {
        What::ProcessExec { process, filename, argv, argv_cut } => {
            let mut text = named(process);
            // The first argument is most often the file's name again.
            text += &format!(" {}", escaped(filename));
            for argument in argv.iter().skip(1) {
                text += &format!(" {}", escaped(argument));
            }
            text + if *argv_cut { " …" } else { "" }
        }
        What::ProcessExit { process, end } => format!("{} {}", named(process), ended(end)),
        What::CniStarted { call } => called(call),
        What::CniFinished { call, end, duration } => {
            let end = end.as_ref().map_or_else(|| "ended unseen".to_owned(), ended);
            format!("{} {end} in {}", called(call), span(*duration))
        }
        What::NetnsCreated { by } => format!("{} by {}", netns(context), named(by)),
        What::NetnsDestroyed { by: Some(by) } => format!("{} by {}", netns(context), named(by)),
        What::NetnsDestroyed { by: None } => netns(context),
        What::NetnsFreed { teardown: Some(teardown) } => {
            format!("{} torn down in {}", netns(context), span(*teardown))
        }
        What::NetnsFreed { teardown: None } => netns(context),
        What::CgroupCreated { by } | What::CgroupRemoved { by } => {
            format!("{} by {}", cgroup(context), named(by))
        }
        What::CgroupEmptied => cgroup(context),
        What::AddressAdded { address, ifname } | What::AddressRemoved { address, ifname } => {
            format!("{address} on {} in {}", escaped(ifname), netns(context))
        }
        What::SandboxCreated => sandbox(context),
        What::SandboxReady { since_created } => {
            format!("{} after {}", sandbox(context), span(*since_created))
        }
        What::SandboxStopped { why } => {
            format!("{} {}", sandbox(context), why.into_str().replace('_', " "))
        }
        What::ContainerStarted { process } => format!("{} {}", container(context), named(process)),
        What::ContainerListening { process, socket, since_started } => {
            let (of, by) = (container(context), named(process));
            format!("{of} {by} on {} after {}", phase::socket(*socket), span(*since_started))
        }
        What::ContainerExited { process, end, ran } => {
            let text = format!("{} {} {}", container(context), named(process), ended(end));
            match ran {
                Some(ran) => format!("{text} after {}", span(*ran)),
                None => text,
            }
        }
        What::PodFirstSeen => match context.pod.as_ref().and_then(|pod| pod.uid.as_ref()) {
            Some(uid) => format!("uid {uid}"),
            None => String::new(),
        },
        What::PodStarted(start) => phase::summary(start),
        What::PodGone { lived } => format!("lived {}", span(*lived)),
        What::FindingOpened(it) | What::FindingConfirmed(it) | What::FindingClosed(it) => {
            format!("{} ({})", summary(&it.kind), it.key)
        }
        What::Gap { what, count } => {
            format!("{count} lost: {}", what.into_str().replace('_', " "))
        }
    }
}

/// `comm[pid]`.
fn named(process: &Process) -> String {
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

fn ended(end: &End) -> String {
    let mut text = match end.signal {
        Some(number) => match word::signal_number(number) {
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
        Some(ContainerRef { name: Some(name), id }) => format!("{} ({})", escaped(name), id.short()),
        Some(ContainerRef { name: None, id }) => id.short().to_owned(),
        None => "?".to_owned(),
    }
}
