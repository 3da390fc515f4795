//! **Rule:** the runtime called a plugin with ADD or DEL, and the call has run for longer than the limit; or
//! such a call ended in the last ten minutes.
//!
//! Not flagged: an ADD that ran for long and failed, or that is tried again after a failed one
//! (`cni_failing`); calls that plugins make themselves, which are part of the time of the runtime's call; a
//! call whose end may be among lost records, until a listing shows that it still runs; the time that a call
//! ran on after its runtime had ended. After a suspend of the node the time of a call counts from when the
//! node woke.

use std::{collections::BTreeMap, path::Path, time::Duration};

use probe_common::runtime::HOST_LOCAL;

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::table::{
        attachment::{Attachment, LATELY, Plugin, Runs},
        call::Call,
    },
    model::{
        fact::{List, Origin, PodName, Store, StoreKind},
        finding::{CniSlow, Explain, Severity, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{cni_in_journal, lines, quoted},
        span::span,
    },
};

/// How many sandboxes, those whose calls still run and then the longest, are shown as evidence.
const SHOWN: usize = 16;

/// At most this many folders of host-local are named.
const STORES: usize = 16;

/// Whether a call is judged. A call that only a listing showed is not: its program began before the hooks,
/// and no hook sees its end.
fn is_judged(call: &&Call) -> bool {
    call.top && call.origin != Origin::Listed
}

/// A slow call of a plugin.
#[derive(Clone)]
pub(super) struct Slow {
    plugin: String,
    command: &'static str,
    took: Duration,
    since: Timestamp,
    /// Until when the finding names the call. None: the call still runs.
    until: Option<Timestamp>,
    pod: PodName,
    container: Option<ContainerId>,
    gapped: bool,
}

/// Judges the ended calls of one sandbox.
impl Rule for CniSlow {
    type Subject = ContainerId;
    type Part = Slow;
    const SUBJECTS: Subjects<ContainerId> = Subjects::ATTACHED;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Slow>) {
        for row in ctx.world.attachments.of(id) {
            let runs = row.plugins.iter().flat_map(runs_of);
            found
                .extend(runs.filter_map(|(plugin, command, runs)| finished(ctx, row, plugin, command, runs)));
        }
    }
}

impl Slow {
    /// Returns the order in which calls are named, the last one first: calls that run, then the longest.
    fn rank(&self) -> (bool, Duration, Option<&ContainerId>) {
        (self.until.is_none(), self.took, self.container.as_ref())
    }
}

impl Part for Slow {
    fn due_at(&self) -> Option<Timestamp> {
        self.until
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<CniSlow>, found: &mut Vec<Detection>) {
    let mut slow: BTreeMap<(String, &'static str), Vec<Slow>> = BTreeMap::new();
    for it in judged.parts() {
        slow.entry((it.plugin.clone(), it.command)).or_default().push(it.clone());
    }
    // When the first of the calls that are within the limit will exceed it.
    let mut next: Option<Timestamp> = None;
    for call in ctx.world.calls.values().filter(is_judged) {
        let plugin = call.call.plugin.clone();
        let Some(command) = operation(&call.call.command) else { continue };
        if command == "ADD" && has_failed(ctx, &call.pod, &plugin) {
            continue;
        }
        let due = ctx.awake(call.at) + ctx.limits.cni_slow;
        let until = call.cut_off_at.unwrap_or(ctx.now);
        if until < due {
            if call.cut_off_at.is_some() {
                continue;
            }
            next = next.into_iter().chain([due]).min();
            continue;
        }
        slow.entry((plugin.clone(), command)).or_default().push(Slow {
            plugin,
            command,
            took: ctx.world.awake_for(call.at, until),
            since: call.at,
            until: None,
            pod: call.pod.clone(),
            container: call.container.clone(),
            gapped: ctx.world.lists.is_gapped(List::Processes),
        });
    }
    let stores = if slow.is_empty() { Vec::new() } else { unusual_stores(ctx) };
    for ((plugin, command), all) in slow {
        found.extend(detection(&plugin, command, all, &stores));
    }
    found.extend(next.map(watched));
}

/// Returns the folders of host-local that are not in its usual one.
fn unusual_stores(ctx: &DetectContext<'_>) -> Vec<String> {
    let all = ctx.world.records.stores.values().map(|(_, read)| &read.store);
    let own = all.filter(|it| it.kind == StoreKind::HostLocal && !is_usual(it));
    own.take(STORES).map(|it| it.path.clone()).collect()
}

/// Whether the store is in host-local's usual folder.
fn is_usual(store: &Store) -> bool {
    Path::new(&store.path).parent() == Some(Path::new(HOST_LOCAL))
}

/// Whether an ADD of this plugin has failed for the pod. Then `cni_failing` covers the pod.
fn has_failed(ctx: &DetectContext<'_>, pod: &PodName, plugin: &str) -> bool {
    let rows = ctx.index.named.by(pod).filter_map(|key| ctx.world.attachments.get(key));
    pod.names_pod() && rows.flat_map(|row| &row.plugins).any(|it| it.name == plugin && it.add.failed > 0)
}

fn runs_of(plugin: &Plugin) -> [(&Plugin, &'static str, &Runs); 3] {
    [(plugin, "ADD", &plugin.add), (plugin, "DEL", &plugin.del), (plugin, "DEL", &plugin.del_without_netns)]
}

fn finished(
    ctx: &DetectContext<'_>,
    row: &Attachment,
    plugin: &Plugin,
    command: &'static str,
    runs: &Runs,
) -> Option<Slow> {
    let until = runs.longest_at + LATELY;
    let is_slow = runs.longest >= ctx.limits.cni_slow && runs.longest > Duration::ZERO && ctx.now < until;
    is_slow.then(|| Slow {
        plugin: plugin.name.clone(),
        command,
        took: runs.longest,
        since: runs.longest_at.saturating_sub(runs.longest),
        until: Some(until),
        pod: row.pod.clone(),
        container: Some(row.container.clone()),
        gapped: false,
    })
}

fn operation(command: &str) -> Option<&'static str> {
    ["ADD", "DEL"].into_iter().find(|it| *it == command)
}

fn detection(plugin: &str, command: &str, mut all: Vec<Slow>, stores: &[String]) -> Option<Detection> {
    all.sort_by(|one, other| one.rank().cmp(&other.rank()));
    let worst = all.last()?;
    let kind = CniSlow {
        plugin: plugin.to_owned(),
        command: command.to_owned(),
        took: worst.took,
        open: worst.until.is_none(),
        stores: stores.to_vec(),
    };
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    for id in all.iter().rev().filter_map(|it| it.container.as_ref()) {
        if !sandboxes.contains(id) && sandboxes.len() < SHOWN {
            sandboxes.push(id.clone());
        }
    }
    let pod = Some(worst.pod.clone()).filter(|pod| *pod != PodName::default());
    let is_sure = all.iter().any(|it| !it.gapped);
    let verdict = match all.iter().filter_map(|it| it.until).max() {
        _ if !is_sure => Verdict::Watched { until: None },
        Some(until) => Verdict::Passing { until },
        None => Verdict::Confirmed,
    };
    Some(Detection {
        pod,
        sandboxes,
        gapped: all.iter().any(|it| it.gapped),
        ..Detection::new(kind, &[plugin, command], Severity::Warning, worst.since, verdict)
    })
}

/// Makes a detection that opens no finding, but sets a time to judge again. It has its own key, so that it
/// keeps no finding open.
fn watched(until: Timestamp) -> Detection {
    let nothing = CniSlow {
        plugin: String::new(),
        command: String::new(),
        took: Duration::ZERO,
        open: true,
        stores: Vec::new(),
    };
    Detection::new(nothing, &[""], Severity::Info, until, Verdict::Watched { until: Some(until) })
}

/// Prints the processes that hold the lock of a network of host-local, each with the path of the lock.
///
/// The file is compared instead of its path: a process in another mount namespace may see it at another path.
/// Only file descriptors that hold the lock say so in `fdinfo`; those that wait for it do not.
fn lock_holders(networks: &str, stores: &[String]) -> String {
    let others: String = stores
        .iter()
        .filter_map(|path| quoted(&format!("{path}/lock")))
        .fold(String::new(), |all, path| all + " " + &path);
    format!(
        "for lock in {networks}/*/lock{others}; do find -L /proc/[0-9]*/fd -maxdepth 1 -samefile \"$lock\" 2>/dev/null | \
         while read -r fd; do of=${{fd%/fd/*}}; grep -qs FLOCK \"$of/fdinfo/${{fd##*/}}\" && \
         echo \"$lock is held by ${{of#/proc/}}: $(tr '\\0' ' ' <\"$of/cmdline\")\"; done; done"
    )
}

impl Explain for CniSlow {
    fn summary(&self) -> String {
        let verb = if self.open { "has been running for" } else { "took" };
        format!("{} {} {verb} {}", escaped(&self.command), escaped(&self.plugin), span(self.took))
    }

    fn cause(&self) -> &'static str {
        "One call of the CNI plugin takes longer than a pod should have to wait."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = lines(&[
            "# Which process holds a lock that others wait for (host-local has one for each network). It may be a plugin that a",
            "# runtime left behind when it ended: nobody waits for it any more, and it can be killed.",
        ]);
        all.push(lock_holders(HOST_LOCAL, &self.stores));
        all.extend(cni_in_journal());
        all
    }

    fn forget_numbers(&mut self) {
        self.took = Duration::ZERO;
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Plugin(&self.plugin)]
    }

    fn follows_worst(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, slice};

    use tempfile::Builder;

    use super::lock_holders;

    /// A process that only has the file open, like one that waits for the lock, is not shown. A network can
    /// have a folder of its own (`dataDir`).
    #[test]
    fn the_process_that_holds_the_lock_is_shown() {
        for is_usual in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let network =
                Builder::new().prefix("pod net").rand_bytes(0).tempdir_in(&folder).expect("a folder");
            let lock = Builder::new().prefix("lock").rand_bytes(0).tempfile_in(&network).expect("a file");
            let path = network.path().to_str().expect("a path").to_owned();
            let usual = if is_usual { folder.path().to_str().expect("a path") } else { "/nowhere" };
            let command = lock_holders(usual, if is_usual { &[] } else { slice::from_ref(&path) });
            let shown = || {
                let output = Command::new("sh").args(["-c", &command]).output().expect("a shell");
                String::from_utf8(output.stdout).expect("text")
            };
            assert_eq!(shown(), "", "nobody holds it");
            lock.as_file().lock().expect("the lock");
            let own = format!("/pod net/lock is held by {}: ", std::process::id());
            let told = shown();
            assert!(told.contains(&own), "{told}");
        }
    }
}
