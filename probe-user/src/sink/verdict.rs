//! A finding in one line of plain words: in the stream, in lists, in JSON beside the data.

use std::fmt::Write as _;

use super::{escape::escaped, span::span, word};
use crate::model::finding::{
    Blind, Cause, CniFailing, Duplicate, Kind, LeakedAddress, OutOfOrder, PoolExhaustion,
};

/// What is wrong, without the pod, which stands beside it.
#[must_use]
pub(crate) fn summary(kind: &Kind) -> String {
    match kind {
        Kind::LeakedAddress(it) => leaked(it),
        Kind::AbandonedStore { path, network, count } => {
            format!(
                "{count} given out in {}, of the network {}, which no configuration names",
                escaped(path),
                escaped(network)
            )
        }
        Kind::UnverifiedRelease { plugin, count } => {
            format!("{count} released by a blind DEL of {}, and no store to read", escaped(plugin))
        }
        Kind::DuplicateSandbox { form, count } => duplicate(*form, *count),
        Kind::TeardownOutOfOrder { how, killer, signal } => {
            let mut text = match how {
                OutOfOrder::PauseKilled => "pause killed before the runtime stopped the sandbox".to_owned(),
                OutOfOrder::PauseOutOfMemory => "pause killed for want of memory".to_owned(),
                OutOfOrder::NetnsGone => {
                    "network namespace gone before the runtime stopped the sandbox".to_owned()
                }
            };
            if let Some(by) = killer {
                _ = write!(text, ", by {}[{}]", escaped(&by.comm), by.key.pid);
            }
            if let Some(number) = signal {
                let name = word::signal_number(*number);
                _ = write!(text, " with {}", name.map_or_else(|| number.to_string(), str::to_owned));
            }
            text
        }
        Kind::OrphanNetns { netns, mounts } => match mounts.first() {
            Some(mount) => format!("netns {} is unused and kept by {}", netns.inode, escaped(mount)),
            None => format!("netns {} is unused and kept", netns.inode),
        },
        Kind::StuckNetnsTeardown { netns, held, waiting } => {
            let mut text = format!("netns {} is being torn down for {}", netns.inode, span(*held));
            if *waiting > 0 {
                _ = write!(text, ", {waiting} others wait behind it");
            }
            text
        }
        Kind::StuckCgroup { path, .. } => format!("cgroup {} outlives its pod", escaped(path)),
        Kind::OrphanSandbox { process } => {
            format!("{}[{}] lives, and no runtime knows its sandbox", escaped(&process.comm), process.key.pid)
        }
        Kind::DuplicateContainer { name, containers } => {
            format!("{} containers named {} live in one sandbox", containers.len(), escaped(name))
        }
        Kind::DuplicateAddress { address, .. } => format!("{address} was given to two sandboxes"),
        Kind::CniFailing(it) => failing(it),
        Kind::CniSlow { plugin, command, took, open } => {
            let verb = if *open { "has been running for" } else { "took" };
            format!("{} {} {verb} {}", escaped(command), escaped(plugin), span(*took))
        }
        Kind::CniQueue { waiting, oldest, plugin } => {
            format!(
                "{waiting} CNI plugins run at once, the oldest ({}) for {}",
                escaped(plugin),
                span(*oldest)
            )
        }
        Kind::PoolExhaustion(it) => pool(it),
        Kind::BlindSpot { spot, weaker } => {
            let what = match spot {
                Blind::Signal { signal } => format!("{} is not seen", signal.into_str()),
                Blind::Lost { count } => format!("{count} records were lost"),
                Blind::Store { path } => format!("the store {} cannot be read whole", escaped(path)),
                Blind::Runtime { place: Some(place) } => {
                    format!("the runtime's records in {} cannot be read whole", escaped(place))
                }
                Blind::File { path } => format!("reading {} hangs", escaped(path)),
                Blind::Listing { list } => format!("{} cannot be listed whole", word::list(*list)),
                Blind::Kubelet => "there are pods, and no kubelet is known".to_owned(),
                Blind::Runtime { place: None } => "no runtime's records were found".to_owned(),
                Blind::CniCache { path, count: 1 } => {
                    format!("libcni's cache file {} cannot be read", escaped(path))
                }
                Blind::CniCache { path, count } => {
                    format!("{count} files of libcni's cache cannot be read, as {}", escaped(path))
                }
            };
            let weaker: Vec<_> = weaker.iter().map(|it| it.into_str()).collect();
            format!("{what}; weaker: {}", weaker.join(", "))
        }
    }
}

fn leaked(it: &LeakedAddress) -> String {
    let why = match it.cause {
        Cause::DelMissing => "DEL was never called",
        Cause::DelBlind => "DEL was called without its network namespace only",
        Cause::DelFailed => "DEL failed each time",
        Cause::AddFailed => "the ADD failed and no DEL was called",
        Cause::RuntimeEnded => "the runtime ended before it had the sandbox on record",
        Cause::StaleRecord => "a store names a sandbox that no runtime knows",
    };
    let network = it.network.as_deref().map(|name| format!(" of {}", escaped(name))).unwrap_or_default();
    match &it.many {
        None => format!("{}{network} leaked: {why}", it.address),
        Some(many) => format!("{} addresses{network} leaked, from {} on: {why}", many.count, it.address),
    }
}

fn duplicate(form: Duplicate, count: u32) -> String {
    let text = match form {
        Duplicate::Concurrent => "two sandboxes of the pod live at once",
        Duplicate::AfterCompletion => "a sandbox was made after the pod was done",
        Duplicate::UnusedRebuild => "sandboxes are made again and again and run nothing",
    };
    if count > 1 { format!("{text} ({count} pods at once)") } else { text.to_owned() }
}

fn failing(it: &CniFailing) -> String {
    let CniFailing { plugin, attempts, pods, wasted, code, message } = it;
    let mut text = format!("ADD of {} failed {attempts} times", escaped(plugin));
    if let Some(code) = code {
        _ = write!(text, ", last with exit {code}");
    }
    _ = write!(text, ", {pods} pods wait, {} lost", span(*wasted));
    if let Some(said) = message.as_ref().and_then(|it| it.text.as_deref()) {
        _ = write!(text, ": {}", escaped(said));
    }
    text
}

fn pool(it: &PoolExhaustion) -> String {
    let PoolExhaustion { network, subnet, size, used, leaked, free, runs_out_in } = it;
    let mut text =
        format!("{} {subnet}: {used} used, {leaked} leaked, {free} of {size} free", escaped(network));
    if let Some(left) = runs_out_in.filter(|_| *free > 0) {
        _ = write!(text, ", empty in {} at this rate", span(left));
    }
    text
}
