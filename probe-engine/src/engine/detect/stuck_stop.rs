//! **Rule:** the stop of a sandbox has begun and is not over after the grace period for cleanup by runtime
//! and kubelet. One of its steps is open. `containers`: the runtime sent SIGKILL to a process of the sandbox,
//! and the process still runs. `del`: the sandbox is over, its runtime has it on record, and DEL has not
//! succeeded for one of its attachments. `unmount`: every DEL has succeeded, and the sandbox's network
//! namespace is still bound to a file.
//!
//! The grace period begins with SIGKILL, not with SIGTERM: between the two is the pod's own
//! `terminationGracePeriodSeconds`, which may be an hour. For the other steps it begins with the end of the
//! sandbox, or of the last of its containers: if only the pause process was killed, they run until somebody
//! stops the sandbox. It does not begin before the first sign of the stop, if there is one, and no step `del`
//! is confirmed while the first DEL runs. Each step has its own grace period: a finding about a step that is
//! over closes.
//!
//! libcni before 1.2 reads the result of ADD from its cache before it calls DEL. If it cannot decode that
//! file, it calls no plugin at all, and the runtime fails each time. Such a file counts even if the agent did
//! not see the sandbox's life.
//!
//! Not flagged: a container in its termination grace period; a sandbox that no runtime has on record
//! (`leaked_address`, `orphan_netns`); a sandbox that never had a process, and whose ADD was seen
//! (`cni_failing`); a sandbox that is over and for which no DEL was called, if no kubelet runs; a record that
//! stays although all else is over, since the kubelet keeps the record of a completed pod until the pod is
//! deleted. If records were lost, DEL counts as open only while libcni's cache has the result of ADD.

use std::path::Path;

use super::{
    DetectContext, Detection, Verdict,
    blind_spot::READ,
    index::Subjects,
    rule::{Rule, Step},
};
use crate::{
    engine::world::{
        lookup,
        netns_path::plain,
        table::{
            attachment::{Attachment, Outcome, Plugin},
            process::State,
            record::HasRecord,
            sandbox::Sandbox,
        },
    },
    model::{
        change,
        fact::{List, Origin, Said, sandbox_of_cached},
        finding::{Explain, FindingKind, Key, Kind, Severity, StopStep, StuckStop, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        said::{REPAIR_WHAT_IS_SAID, forget_times, nothing_said, quotation},
        shell::{UNPRINTABLE, cni_in_journal, lines, quoted, stop_if_nothing_runs},
    },
};

impl Rule for StuckStop {
    type Subject = ContainerId;
    type Part = Step;
    const SUBJECTS: Subjects<ContainerId> = Subjects::sandboxes(|ctx| {
        let of_cached = ctx.world.records.unread.keys().filter_map(|path| sandbox_of_cached(path));
        let on_record = ctx.world.records.known_since.keys().cloned();
        ctx.world.sandboxes.all().map(|row| row.id.clone()).chain(of_cached).chain(on_record).collect()
    });

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Step>) {
        let row = ctx.world.sandboxes.recall(id);
        let killed = row.and_then(|row| still_runs(ctx, row));
        let open = killed.or_else(|| not_deleted(ctx, id, row)).or_else(|| still_bound(ctx, row?));
        found.extend(open.map(|it| Step::of(ctx, it, is_same_step)));
    }
}

fn is_same_step(one: &Kind, other: &Kind) -> bool {
    let (Kind::StuckStop(one), Kind::StuckStop(other)) = (one, other) else { return false };
    one.step == other.step
}

/// Detects the step `containers`.
fn still_runs(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Detection> {
    let containers = ctx.index.sandboxes.by(&row.id).chain([&row.id]);
    let containers = containers.filter_map(|id| ctx.world.containers.get(id));
    let killed = containers.filter(|it| it.run.killed_at.is_some() && it.is_running());
    let container = killed.min_by_key(|it| it.run.killed_at)?;
    let process = ctx.world.processes.get(container.process()?).filter(|it| it.state == State::Running)?;
    let since = container.run.killed_at?;
    let mut verdict = quietly(ctx.after_cleanup(since, ctx.limits.leak_grace));
    // The record of its end may be among the lost records.
    let ready = since.max(ctx.up.unwrap_or(since)) + ctx.limits.leak_grace;
    if verdict == Verdict::Confirmed && row.gapped && process.found_at < Some(ready) {
        verdict = ctx.listed_since(&[List::Processes], ready)?;
    }
    let it = change::Process { key: process.key, parent: process.parent, comm: process.comm.clone() };
    let stop = StuckStop { process: Some(it), ..StuckStop::at(StopStep::Containers) };
    Some(detection(ctx, &row.id, stop, since, verdict))
}

/// Detects the step `del`.
fn not_deleted(ctx: &DetectContext<'_>, id: &ContainerId, row: Option<&Sandbox>) -> Option<Detection> {
    let cached = undecodable(ctx, id);
    let all: Vec<&Attachment> = ctx.world.attachments.of(id).collect();
    let is_deleting = all.iter().any(|it| it.has_begun_del());
    if cached.is_none() && !is_deleting && !lookup::daemons::has_kubelet(ctx.world) {
        return None;
    }
    let is_failed_start = all.iter().any(|it| it.was_seen()) || !is_deleting;
    let since = match row {
        Some(row) if cached.is_none() && row.up_since.is_none() && is_failed_start => return None,
        Some(row) => {
            let over_at = row.over_at().or_else(|| found_dead(ctx, row))?;
            // When its pause process ended, possibly nobody had begun to stop it.
            let since = [row.emptied_at(), row.ending.stop_at].into_iter().flatten();
            since.fold(over_at, Timestamp::max)
        }
        // Nothing of it is left on the node, and nobody has begun to stop it.
        None if cached.is_none() && !is_deleting => return None,
        // A listing of the node shows no sandbox, and a runtime has it on record.
        None => {
            let known_since = *ctx.world.records.known_since.get(id)?;
            all.iter().filter_map(|it| it.first_del_at()).min().map_or(known_since, |at| at.max(known_since))
        }
    };
    // Nobody stops it yet: its containers are in their grace period, or only its network namespace is gone.
    if ctx.has_process(id) && !is_deleting {
        return None;
    }
    let held = all.iter().find(|it| is_held(ctx, row, it));
    if held.is_none() && cached.is_none() {
        return None;
    }
    let mut verdict = match ctx.has_record(id) {
        HasRecord::No { .. } => return None,
        HasRecord::Unknown => Verdict::Unsure,
        HasRecord::Yes => quietly(ctx.after_cleanup(since, ctx.limits.leak_grace)),
    };
    if verdict == Verdict::Confirmed && !is_read_since(ctx, since.max(ctx.up?) + ctx.limits.leak_grace) {
        verdict = Verdict::Unverified;
    }
    if all.iter().any(|it| it.is_busy()) {
        // It is not known how the current call will end: until then the finding says what it said.
        if let Some(said) = said(ctx, id) {
            return Some(detection(ctx, id, said.clone(), since, verdict));
        }
        if !all.iter().any(|it| it.has_broken_off_del()) && verdict == Verdict::Confirmed {
            verdict = Verdict::Watched { until: None };
        }
    }
    let failing = held.and_then(|it| unreleased(it));
    let stop = StuckStop {
        attempts: failing.map_or(0, Plugin::vain_deletions),
        plugin: failing.map(|plugin| plugin.name.clone()),
        exit_code: failing.and_then(Plugin::del_code),
        cache_file: cached.map(str::to_owned),
        ..StuckStop::at(StopStep::Del)
    };
    Some(detection(ctx, id, stop, since, verdict))
}

/// Returns the open finding of a sandbox, if it is about its DEL.
fn said<'a>(ctx: &DetectContext<'a>, id: &ContainerId) -> Option<&'a StuckStop> {
    let Kind::StuckStop(said) = &ctx.open_finding(&key(id))?.kind else { return None };
    (said.step == StopStep::Del).then_some(said)
}

/// Returns when a sandbox was found, if none of its processes was ever seen and no runtime is making it.
fn found_dead(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Timestamp> {
    let is_dead = row.origin == Origin::Listed
        && row.up_since.is_none()
        && !row.hides_programs
        && !ctx.world.attachments.of(&row.id).any(Attachment::is_adding);
    is_dead.then_some(row.first_at)
}

/// Returns the file of libcni's cache that is about this sandbox and cannot be decoded. libcni writes a file
/// in place, so it counts only when it was read twice.
fn undecodable<'a>(ctx: &DetectContext<'a>, id: &ContainerId) -> Option<&'a str> {
    let all = ctx.world.records.unread.iter().filter(|(_, it)| it.read_at >= it.since + READ);
    let mut paths = all.map(|(path, _)| path.as_str());
    paths.find(|path| sandbox_of_cached(path).as_ref() == Some(id))
}

/// Whether the records of all runtimes were read at this time or later.
fn is_read_since(ctx: &DetectContext<'_>, at: Timestamp) -> bool {
    ctx.world.records.runtimes.values().all(|row| row.read_at >= at)
}

/// Whether DEL has not succeeded yet.
fn is_held(ctx: &DetectContext<'_>, row: Option<&Sandbox>, it: &Attachment) -> bool {
    if it.gapped || row.is_some_and(|row| row.gapped) {
        ctx.world.records.cached_at(it).is_some()
    } else {
        !is_released(it)
    }
}

/// Whether DEL has gone through the chain: it has succeeded for the plugin that was called first with ADD. If
/// that plugin is no longer configured: the last DEL has succeeded, and libcni's cache has no result.
fn is_released(row: &Attachment) -> bool {
    let is_through =
        row.plugins.iter().find(|plugin| plugin.add.begun > 0).is_some_and(|plugin| !is_open(plugin));
    let last = row.plugins.iter().filter_map(Plugin::last_del).max_by_key(|del| del.last_at);
    let is_over = last.map_or(row.plugins.is_empty(), |del| del.outcome == Some(Outcome::Succeeded));
    is_through || is_over && row.cached_at.is_none()
}

fn is_open(plugin: &Plugin) -> bool {
    plugin.del.succeeded == 0 && plugin.del_without_netns.succeeded == 0
}

/// Returns the plugin at which the DEL of a chain stopped: the one that was called last and did not succeed,
/// else the last of those that were not called.
fn unreleased(row: &Attachment) -> Option<&Plugin> {
    let called = row.plugins.iter().filter_map(|plugin| Some((plugin, plugin.last_del()?)));
    let failed = called.filter(|(_, del)| del.outcome != Some(Outcome::Succeeded));
    let failed = failed.max_by_key(|(_, del)| del.last_at).map(|(plugin, _)| plugin);
    failed.or_else(|| row.plugins.iter().rev().find(|plugin| is_open(plugin)))
}

/// Detects the step `unmount`.
fn still_bound(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Detection> {
    let mut attachments = ctx.world.attachments.of(&row.id);
    if row.up_since.is_none() || attachments.any(|it| it.is_busy() || is_held(ctx, Some(row), it)) {
        return None;
    }
    // A DEL that succeeded has ended no process: the namespace is in use.
    if ctx.has_process(&row.id) {
        return None;
    }
    let plugins = ctx.world.attachments.of(&row.id).flat_map(|it| &it.plugins);
    let last_del = plugins.filter_map(Plugin::last_del).map(|del| del.last_at).max()?;
    let since = last_del.max(row.over_at()?);
    let netns = ctx.world.netns.get(row.network.netns?).filter(|it| it.is_live())?;
    let mount = netns.mounts.first()?;
    let verdict = match ctx.has_record(&row.id) {
        HasRecord::No { .. } => return None,
        HasRecord::Unknown => Verdict::Unsure,
        HasRecord::Yes => {
            let ready = since.max(ctx.up?) + ctx.limits.leak_grace;
            quietly(ctx.left_over(List::Netns, since, ready, netns.found_at)?)
        }
    };
    let stop = StuckStop { mount: Some(mount.clone()), ..StuckStop::at(StopStep::Unmount) };
    Some(detection(ctx, &row.id, stop, since, verdict))
}

/// Turns a candidate into a watched state: a stop that ends within the grace period is an ordinary one.
fn quietly(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Candidate { until } => Verdict::Watched { until },
        Verdict::Watched { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Confirmed
        | Verdict::Passing { .. } => verdict,
    }
}

fn key(id: &ContainerId) -> Key {
    Key::new(FindingKind::StuckStop.into(), &[id.as_str()])
}

fn detection(
    ctx: &DetectContext<'_>,
    id: &ContainerId,
    mut stop: StuckStop,
    since: Timestamp,
    verdict: Verdict,
) -> Detection {
    let row = ctx.world.sandboxes.recall(id);
    let named = match row {
        Some(row) => row.reported.pod.clone(),
        None => lookup::record::pod_of_nameless(ctx.world, id),
    };
    let pod = named.uid.as_ref().and_then(|uid| ctx.world.pods.get(&ctx.world.pods.by_uid(uid)?));
    (stop.said, stop.unsaid) = pod.map(|pod| pod.said_since(since)).unwrap_or_default();
    Detection {
        pod: Some(named),
        sandboxes: vec![id.clone()],
        gapped: row.is_some_and(|row| row.gapped),
        ..Detection::keyed(key(id), stop, Severity::Warning, since, verdict)
    }
}

impl StuckStop {
    /// Returns what the kernel and the node's files show.
    fn seen(&self) -> String {
        match (self.step, &self.cache_file, &self.plugin) {
            (StopStep::Containers, ..) => match &self.process {
                Some(it) => format!("{}[{}] runs on after SIGKILL", escaped(&it.comm), it.key.pid),
                None => "a process runs on after SIGKILL".to_owned(),
            },
            (StopStep::Del, Some(path), _) => {
                format!("DEL is not called: libcni's cache file {} cannot be decoded", escaped(path))
            }
            (StopStep::Del, None, None) => "DEL is not called".to_owned(),
            (StopStep::Del, None, Some(plugin)) if self.attempts == 0 => {
                format!("DEL of {} is not called", escaped(plugin))
            }
            (StopStep::Del, None, Some(plugin)) => {
                let times = counted(self.attempts.into(), "time");
                let code = self.exit_code.map(|code| format!(", last with exit {code}")).unwrap_or_default();
                format!("DEL of {} was called {times} and did not succeed{code}", escaped(plugin))
            }
            (StopStep::Unmount, ..) => {
                let mount = self.mount.as_deref().unwrap_or_default();
                format!("DEL succeeded, and the network namespace is still bound to {}", escaped(mount))
            }
        }
    }

    fn at(step: StopStep) -> Self {
        Self {
            step,
            process: None,
            attempts: 0,
            plugin: None,
            exit_code: None,
            cache_file: None,
            mount: None,
            said: Vec::new(),
            unsaid: None,
        }
    }
}

impl Explain for StuckStop {
    fn summary(&self) -> String {
        let mut text = self.seen();
        text.push_str(&quotation(&self.said));
        text
    }

    fn cause(&self) -> &'static str {
        match (self.step, &self.cache_file) {
            (StopStep::Containers, _) => {
                "The runtime has sent SIGKILL to the container, and the kernel has not ended it: the process waits in the \
                 kernel, mostly for a disk or a network file system, or its cgroup is frozen. StopContainer does not \
                 return, and the pod stays Terminating."
            }
            (StopStep::Del, Some(_)) => {
                "A crash or a power loss left a file of libcni's cache empty or cut off. libcni before 1.2, as in \
                 containerd 1.7, reads the file before it calls DEL, fails, and calls no plugin. StopPodSandbox fails each time the kubelet tries it, the pod \
                 stays Terminating, and its address stays allocated."
            }
            (StopStep::Del, None) if self.attempts > 0 => {
                "The CNI plugin's DEL fails or does not end. StopPodSandbox fails each time the kubelet tries it, the \
                 pod stays Terminating, and its address stays allocated."
            }
            (StopStep::Del, None) => {
                "The sandbox's process is gone, its runtime has the sandbox on record, and nobody calls this DEL: either \
                 the kubelet does not stop the sandbox, or the runtime fails before it calls the plugin, for instance \
                 because no CNI configuration can be loaded or the plugin's executable is missing."
            }
            (StopStep::Unmount, _) => {
                "The plugins have released the network, and the runtime does not remove the file that holds the network \
                 namespace: mostly because the file is mounted in the mount namespace of another process as well, or because its \
                 folder was mounted over itself since (the first `ip netns add` does that), where mounts of / are not shared."
            }
        }
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        match (self.step, &self.cache_file) {
            (StopStep::Containers, _) => {
                let mut all = lines(&[
                    "# This shows what the process waits for. If its state is D, only what it waits for ends it:",
                ]);
                all.extend(self.process.iter().map(|it| {
                    let pid = it.key.pid;
                    format!("grep State /proc/{pid}/status; cat /proc/{pid}/wchan /proc/{pid}/stack")
                }));
                all
            }
            (StopStep::Del, Some(path)) => {
                let folder = Path::new(path).ancestors().nth(2).and_then(Path::to_str).unwrap_or("/");
                let (Some(path), Some(folder)) = (quoted(path), quoted(folder)) else {
                    return lines(&[UNPRINTABLE]);
                };
                let mut all = lines(&[
                    "# Without the file the runtime calls DEL, and the kubelet's next try succeeds. A plugin that needs the result of",
                    "# ADD may leave the address allocated; sandprobe reports that as leaked_address.",
                ]);
                // Only root writes to the folder, and libcni does not read it.
                all.push(format!("mv -- {path} {folder}/"));
                all
            }
            (StopStep::Del, None) => {
                let mut all =
                    if self.said.is_empty() { cni_in_journal() } else { lines(&[REPAIR_WHAT_IS_SAID]) };
                all.extend(self.unsaid.as_deref().map(nothing_said));
                all.push(
                    "# When its cause is repaired, the kubelet's next try succeeds. To try at once:"
                        .to_owned(),
                );
                all.extend(stop_if_nothing_runs(runtimes, sandboxes));
                all
            }
            (StopStep::Unmount, _) => {
                // The kernel's tables of mounts have no `/var/run`, which is a link.
                let path = self.mount.as_deref().map(plain);
                let Some(mount) = path.as_deref().and_then(quoted) else {
                    return lines(&[UNPRINTABLE]);
                };
                let mut all = Vec::new();
                let folder = path.as_deref().and_then(|path| Path::new(path).parent()?.to_str());
                if let Some(folder) = folder.filter(|path| !path.contains(['"', '\\', '\''])) {
                    all = lines(&[
                        "# Whether the folder is mounted over itself, as by the first `ip netns add`. If / is not shared (no `shared:` in",
                        "# its line), two mounts lie over each other, and the runtime unmounts only the upper one. Files from before stay",
                        "# until the node restarts:",
                    ]);
                    all.push(format!("awk '$5 == \"/\" || $5 == \"{folder}\"' /proc/1/mountinfo"));
                }
                all.push("# Otherwise, these processes have the file mounted:".to_owned());
                all.push(format!("grep -lF -- {mount} /proc/[0-9]*/mountinfo"));
                all.extend(stop_if_nothing_runs(runtimes, sandboxes));
                all
            }
        }
    }

    fn said(&self) -> &[Said] {
        &self.said
    }

    fn forget_numbers(&mut self) {
        self.attempts = 0;
        forget_times(&mut self.said);
    }

    fn named(&self) -> Vec<Thing<'_>> {
        self.plugin.iter().map(|it| Thing::Plugin(it)).collect()
    }
}
