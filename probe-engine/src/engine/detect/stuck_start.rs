//! **Rule:** a pod's cgroup was made, and for longer than a limit no container of the pod has run. The limit depends on
//! the step for which the start waits: a sandbox, the sandbox's network, or the first container. It is shorter if the
//! node shows the cause: the CNI configuration cannot be decoded or names no network, or the runtime does not call a
//! plugin that the configuration names, mostly because its executable is missing.
//!
//! A runtime that finds no executable executes nothing, so no event shows it. It shows by what is missing: the plugins
//! before it in the chain succeeded, its own ADD was not called, and the sandbox was given up.
//!
//! A container has run if the kernel has shown it, or if its runtime says over CRI that it runs or ran. The programs of a
//! pod may be no processes of the node (gVisor, Kata Containers): then its start is judged by what the runtime says alone,
//! from when the runtime says that the sandbox is ready, and only while a runtime is followed.
//!
//! Not flagged: a pod one of whose containers has run, also if it ended (a crash loop in its back-off); a pod that had a
//! sandbox which was ready and is over (it ends, or begins anew); an image that is pulled, or a volume that is mounted,
//! within the limit; a plugin that is absent for a moment, as while it is being replaced; a pod whose ADD fails
//! (`cni_failing` has the plugin's words); a pod that was there before the agent; any pod where no kubelet runs. If
//! records were lost since the pod was made, its containers may have run unseen: no such finding opens or closes.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr, time::Duration};

use super::{DetectContext, Detection, HasRun, Verdict, index::Marks, rule::Rule};
use crate::{
    engine::world::{
        attachment::{Attachment, LATELY, Lease},
        pod::Pod,
        sandbox::{Sandbox, State},
    },
    model::{
        fact::{Believed, Role},
        finding::{Explain, Key, Kind, Severity, StartCause, StartStep, StuckStart},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{UNPRINTABLE, cni_in_journal, lines, quoted},
    },
};

/// How long a pod may wait for a sandbox and its network. The kubelet itself waits for volumes for 2 minutes, and for
/// the runtime for 4 ([`MAKING`](crate::engine::world::record::MAKING)).
pub(super) const SANDBOX: Duration = Duration::from_secs(5 * 60);
/// How long a pod may wait for its first container: an image may be large.
pub(super) const CONTAINER: Duration = Duration::from_secs(10 * 60);
/// The same where the node shows the cause.
pub(super) const CAUSE: Duration = Duration::from_secs(60);
/// The plugins of a chain are called one right after the other.
pub(super) const NEXT: Duration = Duration::from_secs(10);
/// How many sandboxes, the latest ones, are shown as evidence.
const SHOWN: usize = 16;

impl Rule for StuckStart {
    type Subject = u64;
    type Part = Detection;

    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<u64> {
        ctx.world.pods.keys().copied().collect()
    }

    fn marked(marks: &Marks) -> &BTreeSet<u64> {
        &marks.pods
    }

    fn judge(ctx: &DetectContext<'_>, id: &u64, found: &mut Vec<Detection>) {
        if ctx.world.has_kubelet() {
            found.extend(ctx.world.pods.get(id).and_then(|pod| stuck(ctx, pod)));
        }
    }

    /// A runtime may begin to answer, or be given up.
    fn depends_on_others(marks: &Marks) -> bool {
        marks.runtimes
    }
}

fn stuck(ctx: &DetectContext<'_>, pod: &Pod) -> Option<Detection> {
    // If a sandbox of it was ready and is over, the pod ends or begins anew.
    let is_first = pod.is_present() && !pod.start.is_complete && pod.left_at.is_none();
    let made_at = pod.start.made_at.filter(|_| is_first)?;
    let uid = pod.named.uid.as_ref()?;
    let mut tries: Vec<&Sandbox> =
        ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id)).collect();
    tries.sort_by_key(|row| (row.first_at, row.id.clone()));
    let is_known = tries.iter().all(|row| !row.gapped && !row.work.is_unsure);
    // Times without an agent are among them.
    let was_lossless = ctx.world.coverage.losses.as_ref().is_none_or(|it| it.last_at < made_at);
    if has_run(ctx, pod, &tries) != HasRun::No {
        return None;
    }
    let failing = failing_until(ctx, &tries);
    let live = tries.iter().rev().find(|row| !row.is_stopped());
    let said = live.filter(|row| row.hides_programs).and_then(|row| ctx.said_of_sandbox(&row.id));
    let is_answered = said.is_none_or(|(_, runtime)| runtime.answers());
    let is_whole = is_known && was_lossless && is_answered;
    let (step, since, limit) = match said {
        Some((row, runtime)) if row.state(runtime) != Some(Believed::Running) => return None,
        Some((row, runtime)) => (StartStep::Container, row.said_since(runtime), CONTAINER),
        None => waits_for(ctx, made_at, live.copied()),
    };
    let stuck = StuckStart {
        step,
        sandboxes: u32::try_from(tries.len()).unwrap_or(u32::MAX),
        cause: None,
        plugin: None,
        network: None,
        config_file: None,
        addresses: Vec::new(),
    };
    let cause = (step != StartStep::Container).then(|| cause(ctx, made_at, &tries, &stuck)).flatten();
    let is_caused = cause.is_some();
    let (stuck, since, limit) = match cause {
        Some((stuck, from)) => (stuck, from.max(made_at), CAUSE),
        None => (StuckStart { plugin: live.and_then(|row| adding(ctx, row)), ..stuck }, since, limit),
    };
    let kind = Kind::from(stuck);
    let shown = tries.iter().skip(tries.len().saturating_sub(SHOWN));
    let until = ctx.awake(since) + limit;
    // Until then the runtime may call the next plugin of a chain.
    let next = live.and_then(|row| last_call(ctx, row)).map(|at| at + NEXT).filter(|at| *at > ctx.now);
    // The configuration that shows the cause, or none, may be as old as the last CNI call.
    let ready = if is_caused { until } else { ctx.awake(since) + CAUSE };
    let read_at = ctx.world.records.networks.as_ref().map(|(at, _)| *at);
    let is_stale = step != StartStep::Container && read_at.is_some_and(|at| at < ready);
    let due =
        [next, Some(ready).filter(|at| *at > ctx.now)].into_iter().flatten().fold(until, Timestamp::min);
    Some(Detection {
        key: Key::new(kind.into_str(), &[uid.as_str()]),
        kind,
        severity: Severity::Warning,
        since,
        pod: Some(pod.named.clone()),
        sandboxes: shown.map(|row| row.id.clone()).collect(),
        gapped: false,
        verdict: match ctx.now >= until {
            // A container of it may have run.
            _ if !is_whole => Verdict::Unsure,
            _ if failing.is_some() => Verdict::Watched { until: failing },
            _ if is_stale && ctx.now >= ready => Verdict::Unverified,
            true => Verdict::Confirmed,
            false => Verdict::Watched { until: Some(due) },
        },
    })
}

/// The step for which a start waits whose latest sandbox that lives is `live`, since when, and for how long it may.
fn waits_for(
    ctx: &DetectContext<'_>,
    made_at: Timestamp,
    live: Option<&Sandbox>,
) -> (StartStep, Timestamp, Duration) {
    let Some(row) = live else { return (StartStep::Sandbox, made_at, SANDBOX) };
    match row.state {
        State::Ready { at } => (StartStep::Container, at, CONTAINER),
        State::Created => match made_without_process(ctx, row) {
            Some(at) => (StartStep::Container, at, CONTAINER),
            None => (StartStep::Network, row.first_at, SANDBOX),
        },
        State::Stopped { .. } | State::Remembered { .. } => (StartStep::Sandbox, made_at, SANDBOX),
    }
}

/// When the network of a sandbox was made that has no process before its first container: CRI-O makes none for most pods.
fn made_without_process(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Timestamp> {
    let all = attachments(ctx, row);
    let is_made = all.iter().any(|it| !it.is_loopback()) && all.iter().all(|it| it.is_added());
    let is_made =
        is_made && row.up_since.is_none() && ctx.world.has_crio() && ctx.world.chains_are_through(&row.id);
    last_call(ctx, row).filter(|_| is_made)
}

/// Whether a container of the pod has run. `Unknown`: nothing tells, of one of its sandboxes at least.
pub(super) fn has_run(ctx: &DetectContext<'_>, pod: &Pod, tries: &[&Sandbox]) -> HasRun {
    let containers = ctx.index.pods_of_containers.by(&pod.id);
    let mut containers = containers.filter_map(|id| ctx.world.containers.get(id));
    if containers.any(|row| row.role != Some(Role::Sandbox) && row.is_running()) {
        return HasRun::Yes;
    }
    let mut has_run = HasRun::No;
    for row in tries {
        match ctx.has_run(row) {
            HasRun::Yes => return HasRun::Yes,
            HasRun::Unknown => has_run = HasRun::Unknown,
            HasRun::No => {}
        }
    }
    has_run
}

/// Until when `cni_failing` has the pod, since an ADD of the latest try that called a plugin failed.
fn failing_until(ctx: &DetectContext<'_>, tries: &[&Sandbox]) -> Option<Timestamp> {
    let mut called = tries.iter().rev().map(|row| attachments(ctx, row)).filter(|all| !all.is_empty());
    let latest = called.next().unwrap_or_default();
    let failed = latest.iter().flat_map(|row| &row.plugins).filter(|plugin| plugin.add.failed > 0);
    failed.map(|plugin| plugin.add.last_at + LATELY).max().filter(|until| *until > ctx.now)
}

fn attachments<'a>(ctx: &DetectContext<'a>, row: &Sandbox) -> Vec<&'a Attachment> {
    ctx.world.attachments_of(&row.id).filter(|it| it.was_seen()).collect()
}

/// When the last of its plugins was called or ended.
fn last_call(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Timestamp> {
    attachments(ctx, row).iter().flat_map(|it| it.adds()).map(|add| add.last_at).max()
}

/// The plugin whose ADD is open.
fn adding(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<String> {
    let mut plugins = ctx.world.attachments_of(&row.id).flat_map(|it| &it.plugins);
    plugins.find(|plugin| plugin.add.is_open()).map(|plugin| plugin.name.clone())
}

/// Why the network is not made, where the node shows it, and since when.
///
/// The kubelet begins no pod while the network is not ready, but those of the host's network, which need none.
fn cause(
    ctx: &DetectContext<'_>,
    made_at: Timestamp,
    tries: &[&Sandbox],
    stuck: &StuckStart,
) -> Option<(StuckStart, Timestamp)> {
    let (_, read) = ctx.world.records.networks.as_ref()?;
    let is_attached = |row: &&Sandbox| attachments(ctx, row).iter().any(|it| !it.is_loopback());
    if let Some(since) = ctx.world.records.unconfigured_since.filter(|since| made_at < *since)
        && !tries.iter().any(|row| row.network.is_host || is_attached(row))
    {
        let it = StuckStart {
            cause: Some(StartCause::NotConfigured),
            config_file: read.undecodable.first().cloned(),
            ..stuck.clone()
        };
        return Some((it, since));
    }
    // The tries of the same cause, the latest first.
    let mut stops = tries.iter().rev().map_while(|row| Some((row.first_at, chain_stop(ctx, row)?)));
    let (mut since, stop) = stops.next()?;
    let mut addresses: BTreeSet<IpAddr> = stop.addresses.into_iter().collect();
    for (at, other) in stops {
        if other.plugin != stop.plugin {
            break;
        }
        since = at;
        addresses.extend(other.addresses);
    }
    let it = StuckStart {
        cause: Some(StartCause::PluginNotCalled),
        plugin: Some(stop.plugin),
        network: Some(stop.network),
        addresses: addresses.into_iter().collect(),
        ..stuck.clone()
    };
    Some((it, since))
}

/// The place at which the runtime gave up a chain though no ADD of it failed. A runtime that ended meanwhile gave up none.
struct ChainStop {
    network: String,
    /// The plugin that it did not call.
    plugin: String,
    /// The addresses that the plugins before it gave and that are still held.
    addresses: Vec<IpAddr>,
}

fn chain_stop(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<ChainStop> {
    let all = attachments(ctx, row);
    let last_at = last_call(ctx, row)?;
    let is_over = row.is_stopped() || ctx.now >= last_at + NEXT;
    if !is_over || all.iter().any(|it| !it.is_added()) {
        return None;
    }
    // With the runtime that called them, the chain ended too.
    if ctx.world.runtimes_turned_at().is_none_or(|at| last_at < at) {
        return None;
    }
    let networks = ctx.world.records.networks();
    let attached = all.iter().find(|it| !it.is_loopback());
    let network = match attached {
        Some(it) => ctx.world.network(it)?,
        // The runtime calls the loopback plugin and the first plugin of the network at the same time.
        None => networks.first().filter(|_| networks.len() == 1)?,
    };
    let is_called = |name: &&String| {
        attached
            .is_some_and(|it| it.plugins.iter().any(|plugin| plugin.name == **name && plugin.add.begun > 0))
    };
    let plugin = network.called().find(|name| !is_called(name))?;
    let leases = attached.into_iter().flat_map(|it| &it.leases).filter(|_| row.is_stopped());
    Some(ChainStop {
        network: network.name.clone(),
        plugin: plugin.clone(),
        addresses: leases.filter(|it| it.is_on_record()).map(|it: &Lease| it.address).collect(),
    })
}

impl Explain for StuckStart {
    fn summary(&self) -> String {
        let tries = counted(self.sandboxes.into(), "sandbox");
        let plugin = self.plugin.as_deref().map(escaped);
        match (self.cause, self.step) {
            (Some(StartCause::PluginNotCalled), _) => {
                let network = self.network.as_deref().map(escaped).unwrap_or_default();
                let plugin = plugin.unwrap_or_default();
                let mut text = format!(
                    "no network after {tries}: the plugin {plugin} of the network {network} is not called"
                );
                if !self.addresses.is_empty() {
                    let count = u64::try_from(self.addresses.len()).unwrap_or(u64::MAX);
                    _ = write!(text, ", {} left allocated", counted(count, "address"));
                }
                text
            }
            (Some(StartCause::NotConfigured), _) => match &self.config_file {
                Some(path) => {
                    format!("no network: the CNI configuration {} cannot be decoded", escaped(path))
                }
                None => "no network: there is no CNI configuration".to_owned(),
            },
            (None, StartStep::Sandbox) => {
                format!("no container has run, and there is no sandbox after {tries}")
            }
            (None, StartStep::Network) => match plugin {
                Some(plugin) => format!("the sandbox is not ready: ADD of {plugin} does not end"),
                None => "the sandbox is not ready, and no CNI call is open".to_owned(),
            },
            (None, StartStep::Container) => "the sandbox is ready, and no container has run".to_owned(),
        }
    }

    fn cause(&self) -> &'static str {
        match (self.cause, self.step) {
            (Some(StartCause::PluginNotCalled), _) => {
                "The runtime gives up the chain of CNI plugins before this plugin, and no plugin failed. Its executable is \
                 mostly missing from the folder of CNI plugins. The runtime cannot call its DEL either, so it calls no DEL \
                 of the plugins before it in the chain, and their addresses stay allocated. The pod stays \
                 ContainerCreating."
            }
            (Some(StartCause::NotConfigured), _) => {
                "The runtime has no CNI configuration that it can load, so it makes no network: the node is NotReady \
                 (NetworkReady=false), pods stay ContainerCreating or Pending, and pods that end stay Terminating."
            }
            (None, StartStep::Sandbox) if self.sandboxes > 0 => {
                "The runtime has begun sandboxes for the pod, and has given up each of them. An ADD that failed is told as \
                 cni_failing. If none failed, the runtime ended meanwhile, or it refused what a plugin had printed: then \
                 the plugin ended with 0, and only the log of the runtime says what was wrong."
            }
            (None, StartStep::Sandbox) => {
                "The kubelet has made the pod's cgroup, and the runtime has made no sandbox. The kubelet waits for volumes, \
                 or RunPodSandbox fails before it makes a network."
            }
            (None, StartStep::Network) => {
                "RunPodSandbox does not return: a CNI plugin runs, or the runtime waits before it calls one or after the \
                 last one has ended."
            }
            (None, StartStep::Container) => {
                "The sandbox is ready, and no container came to run: its image is being pulled or cannot be pulled, a \
                 Secret or ConfigMap that it names is missing (CreateContainerConfigError), or its command cannot be \
                 executed."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        match (self.cause, &self.config_file) {
            (Some(StartCause::PluginNotCalled), _) => {
                let Some(plugin) = self.plugin.as_deref().and_then(quoted) else {
                    return lines(&[UNPRINTABLE]);
                };
                let mut all = lines(&[
                    "# This prints nothing if the plugin's executable is missing. The installation of the network plugin brings it:",
                ]);
                all.push(format!("find /opt/cni/bin /usr/lib/cni /usr/libexec/cni -name {plugin}"));
                all.extend(cni_in_journal());
                all
            }
            (Some(StartCause::NotConfigured), Some(path)) => {
                let Some(path) = quoted(path) else { return lines(&[UNPRINTABLE]) };
                let mut all = lines(&[
                    "# The network plugin's own pod writes this file when it starts: look at its log, and delete that pod.",
                ]);
                all.push(format!("ls -l -- {path}"));
                all
            }
            (Some(StartCause::NotConfigured), None) => lines(&[
                "# The network plugin's own pod writes the configuration when it starts:",
                "crictl ps --all",
            ]),
            (None, _) => {
                let mut all =
                    lines(&["# The kubelet says what it waits for:", "journalctl -u kubelet --since -15min"]);
                if self.step == StartStep::Sandbox && self.sandboxes > 0 {
                    all.extend(cni_in_journal());
                }
                all
            }
        }
    }

    fn forget_numbers(&mut self) {
        self.sandboxes = 0;
    }

    fn shows_some(&self) -> bool {
        true
    }
}
