//! **Rule:** a pod's cgroup was made, and for longer than a limit no container of the pod has run. The limit
//! depends on the step for which the start waits: a sandbox, the sandbox's network, or the first container.
//! It is shorter if the node shows the cause: the CNI configuration cannot be decoded or names no network, or
//! the runtime does not call a plugin that the configuration names, mostly because its executable is missing.
//! Each step has its own limit: a finding about a step that is over closes.
//!
//! A runtime that finds no executable executes nothing, so no event shows it. Missing events show it: the
//! plugins before it in the chain succeeded, its own ADD was not called, and the sandbox was given up.
//! containerd calls the plugin `loopback` beside the pod's network. If it does not find that one, it calls
//! neither its ADD nor any DEL.
//!
//! Without a configuration the runtime gives up each sandbox, so a pod waits for it only if the runtime has
//! begun a sandbox of the pod. Until then the kubelet may wait for a volume, a Secret or a ConfigMap.
//!
//! A container has run if the kernel has shown it, or if its runtime says over CRI that it runs or ran. The
//! programs of a pod may not be processes of the node (gVisor, Kata Containers): then only the runtime's word
//! counts for its start, from when the runtime says that the sandbox is ready, and only while a runtime is
//! followed.
//!
//! Not flagged: a pod one of whose containers has run, also if it ended (a crash loop in its back-off); a pod
//! that had a sandbox which was ready and is over (it ends, or begins again); an image that is pulled, or a
//! volume that is mounted, within the limit; a pod that waits for a container while a pull is under way on
//! the node, for an hour; a plugin that is absent for a moment, such as while it is being replaced; a pod
//! whose ADD fails (`cni_failing` has the plugin's message); a pod that existed before the agent; any pod if
//! no kubelet runs. If records were lost since the pod was made, its containers may have run unseen: no such
//! finding opens or closes.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use super::{
    DetectContext, Detection, HasRun, Verdict,
    index::{Marks, Subjects},
    rule::{Rule, Step},
};
use crate::{
    engine::world::{
        lookup,
        table::{
            attachment::{Attachment, LATELY},
            pod::Pod,
            record::HasRecord,
            sandbox::{Sandbox, State},
        },
    },
    model::{
        fact::{Believed, LOOPBACK, Role, Said},
        finding::{Explain, FindingKind, Key, Kind, Severity, StartCause, StartStep, StuckStart, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        said::{REPAIR_WHAT_IS_SAID, forget_times, nothing_said, quotation},
        shell::{cni_in_journal, kubelet_in_journal, lines, look_for_configuration, look_for_plugin},
    },
};

/// How long a pod may wait for a sandbox and its network. The kubelet itself waits for volumes for 2 minutes,
/// and for the runtime for 4 ([`MAKING`](crate::engine::world::record::MAKING)).
pub(super) const SANDBOX: Duration = Duration::from_secs(5 * 60);

/// How long a pod may wait for its first container: an image may be large.
pub(super) const CONTAINER: Duration = Duration::from_secs(10 * 60);
/// How long a pod may wait if the node shows the cause.
pub(super) const CAUSE: Duration = Duration::from_secs(60);

/// The plugins of a chain are called one right after the other.
pub(super) const NEXT: Duration = Duration::from_secs(10);

/// How many sandboxes, the latest ones, are shown as evidence.
const SHOWN: usize = 16;

impl Rule for StuckStart {
    type Subject = u64;
    type Part = Step;
    const SUBJECTS: Subjects<u64> = Subjects::PODS;

    fn judge(ctx: &DetectContext<'_>, id: &u64, found: &mut Vec<Step>) {
        if !lookup::daemons::has_kubelet(ctx.world) {
            return;
        }
        let stuck = ctx.world.pods.get(id).and_then(|pod| stuck(ctx, pod));
        found.extend(stuck.map(|it| Step::of(ctx, it, is_same_step)));
    }

    /// A runtime may begin to answer, or be given up.
    fn depends_on_others(marks: &Marks) -> bool {
        marks.runtimes
    }
}

fn is_same_step(one: &Kind, other: &Kind) -> bool {
    let (Kind::StuckStart(one), Kind::StuckStart(other)) = (one, other) else { return false };
    match (one.cause, other.cause) {
        (None, None) => one.step == other.step,
        (Some(StartCause::PluginNotCalled), Some(StartCause::PluginNotCalled)) => one.plugin == other.plugin,
        (one, other) => one == other,
    }
}

fn stuck(ctx: &DetectContext<'_>, pod: &Pod) -> Option<Detection> {
    // If a sandbox of it was ready and is over, the pod ends or begins again.
    let is_first = pod.is_present() && !pod.start.is_complete && pod.left_at.is_none();
    if !is_first {
        return None;
    }
    let made_at = pod.start.made_at?;
    let uid = pod.named.uid.as_ref()?;
    let mut tries: Vec<&Sandbox> =
        ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id)).collect();
    tries.sort_by_key(|row| (row.first_at, row.id.clone()));
    let is_known = tries.iter().all(|row| !row.gapped && !row.work.is_unsure);
    // Times without an agent count as losses.
    let was_lossless = ctx.world.coverage.losses.as_ref().is_none_or(|it| it.last_at < made_at);
    if has_run(ctx, pod, &tries) != HasRun::No {
        return None;
    }
    let failing = failing_until(ctx, &tries);
    let live = tries.iter().rev().find(|row| !row.is_stopped());
    let hidden = live.filter(|row| row.hides_programs).and_then(|row| ctx.said_of_sandbox(&row.id));
    let is_answered = hidden.is_none_or(|(_, runtime)| runtime.answers());
    let is_whole = is_known && was_lossless && is_answered;
    let (step, mut since, mut limit) = match hidden {
        Some((row, runtime)) if row.state(runtime) != Some(Believed::Running) => return None,
        Some((row, runtime)) => (StartStep::Container, row.said_since(runtime), CONTAINER),
        None => waits_for(ctx, made_at, live.copied()),
    };
    let mut stuck = StuckStart {
        step,
        sandboxes: u32::try_from(tries.len()).unwrap_or(u32::MAX),
        cause: None,
        plugin: None,
        network: None,
        folders: Vec::new(),
        config_file: None,
        addresses: Vec::new(),
        said: Vec::new(),
        unsaid: None,
    };
    let cause = if step == StartStep::Container { None } else { cause(ctx, made_at, pod, &tries, &stuck) };
    let is_caused = cause.is_some();
    if let Some((caused, from)) = cause {
        stuck = caused;
        since = from.max(made_at);
        limit = CAUSE;
    } else {
        stuck.plugin = live.and_then(|row| adding(ctx, row));
        if step == StartStep::Sandbox {
            stuck.config_file = undecodable(ctx);
        }
    }
    let key = Key::new(FindingKind::StuckStart.into_str(), &[uid.as_str()]);
    // It is not known how the current try will end: until then the finding says what it said.
    if step == StartStep::Network
        && !is_caused
        && failing.is_none()
        && ctx.now < ctx.awake(since) + limit
        && let Some(said) = said(ctx, &key)
    {
        stuck = said.clone();
    } else {
        (stuck.said, stuck.unsaid) = pod.said_since(since);
    }
    let kind = Kind::from(stuck);
    let shown = tries.iter().skip(tries.len().saturating_sub(SHOWN));
    // While the runtime pulls an image, it may be this pod's.
    let pulling_at =
        if step == StartStep::Container { live.and_then(|row| row.work.pulling_at) } else { None };
    let until = ctx.awake(pulling_at.map_or(since, |at| at.max(since))) + limit;
    // Until then the runtime may call the next plugin of a chain.
    let next = live.and_then(|row| last_call(ctx, row)).map(|at| at + NEXT).filter(|at| *at > ctx.now);
    // The configuration that shows the cause, or none, may be as old as the last CNI call.
    let is_configured = ctx.world.records.unconfigured_since.is_none();
    let ready = if is_caused || !is_configured { until } else { ctx.awake(since) + CAUSE };
    let read_at = ctx.world.records.networks.as_ref().map(|(at, _)| *at);
    let is_stale = step != StartStep::Container && read_at.is_some_and(|at| at < ready);
    let due =
        [next, Some(ready).filter(|at| *at > ctx.now)].into_iter().flatten().fold(until, Timestamp::min);
    let verdict = if !is_whole {
        // A container of it may have run.
        Verdict::Unsure
    } else if failing.is_some() {
        Verdict::Watched { until: failing }
    } else if is_stale && ctx.now >= ready {
        Verdict::Unverified
    } else if ctx.now >= until {
        Verdict::Confirmed
    } else {
        Verdict::Watched { until: Some(due) }
    };
    Some(Detection {
        pod: Some(pod.named.clone()),
        sandboxes: shown.map(|row| row.id.clone()).collect(),
        ..Detection::keyed(key, kind, Severity::Warning, since, verdict)
    })
}

/// Returns the step for which a start waits, since when, and for how long it may. `live`: its latest live
/// sandbox.
fn waits_for(
    ctx: &DetectContext<'_>,
    made_at: Timestamp,
    live: Option<&Sandbox>,
) -> (StartStep, Timestamp, Duration) {
    // Before the CNI configuration changed, the runtime could make no sandbox.
    let reconfigured_at = ctx.world.records.reconfigured_at.unwrap_or(made_at);
    let no_sandbox = (StartStep::Sandbox, made_at.max(reconfigured_at), SANDBOX);
    let Some(row) = live else { return no_sandbox };
    match row.state {
        State::Ready { at } => (StartStep::Container, at, CONTAINER),
        State::Created => match made_without_process(ctx, row) {
            Some(at) => (StartStep::Container, at, CONTAINER),
            None => (StartStep::Network, row.first_at, SANDBOX),
        },
        State::Stopped { .. } | State::Remembered { .. } => no_sandbox,
    }
}

/// Returns the open finding of a pod, if the pod has waited for a sandbox or its network all the time.
fn said<'a>(ctx: &DetectContext<'a>, key: &Key) -> Option<&'a StuckStart> {
    let Kind::StuckStart(said) = &ctx.open_finding(key)?.kind else { return None };
    let is_over = said.step == StartStep::Container || said.cause == Some(StartCause::NotConfigured);
    (!is_over).then_some(said)
}

/// Returns the file of the CNI configuration that cannot be decoded, if the runtime takes it or has no other
/// one.
fn undecodable(ctx: &DetectContext<'_>) -> Option<String> {
    let (_, read) = ctx.world.records.networks.as_ref()?;
    ctx.world.records.unconfigured_since?;
    match &read.loading {
        Some(loading) => loading.fault.as_ref()?.file.clone(),
        None => read.undecodable.first().cloned(),
    }
}

/// Returns when the network was complete, for a sandbox without a process before its first container: CRI-O
/// starts no pause process for most pods.
pub(super) fn made_without_process(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Timestamp> {
    let all = attachments(ctx, row);
    let is_made = all.iter().any(|it| !it.is_loopback()) && all.iter().all(|it| it.is_added());
    if is_made
        && row.up_since.is_none()
        && lookup::daemons::has_crio(ctx.world)
        && lookup::sandbox::chains_are_through(ctx.world, &row.id)
    {
        last_call(ctx, row)
    } else {
        None
    }
}

/// Whether a container of the pod has run. `Unknown`: for at least one of its sandboxes nothing shows it.
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

/// Returns until when `cni_failing` covers the pod, because an ADD failed in the latest try that called a
/// plugin.
fn failing_until(ctx: &DetectContext<'_>, tries: &[&Sandbox]) -> Option<Timestamp> {
    let mut called = tries.iter().rev().map(|row| attachments(ctx, row)).filter(|all| !all.is_empty());
    let latest = called.next().unwrap_or_default();
    let failed = latest.iter().flat_map(|row| &row.plugins).filter(|plugin| plugin.add.failed > 0);
    failed.map(|plugin| plugin.add.last_at + LATELY).max().filter(|until| *until > ctx.now)
}

fn attachments<'a>(ctx: &DetectContext<'a>, row: &Sandbox) -> Vec<&'a Attachment> {
    ctx.world.attachments.of(&row.id).filter(|it| it.was_seen()).collect()
}

/// Returns when the last of its plugins was called or ended.
fn last_call(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<Timestamp> {
    attachments(ctx, row).iter().flat_map(|it| it.adds()).map(|add| add.last_at).max()
}

/// Returns the plugin whose ADD is open.
fn adding(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<String> {
    let mut plugins = ctx.world.attachments.of(&row.id).flat_map(|it| &it.plugins);
    plugins.find(|plugin| plugin.add.is_open()).map(|plugin| plugin.name.clone())
}

/// Returns why the network is not made, if the node shows it, and since when.
///
/// While the network is not ready, the kubelet begins only pods on the host's network, which need none.
fn cause(
    ctx: &DetectContext<'_>,
    made_at: Timestamp,
    pod: &Pod,
    tries: &[&Sandbox],
    stuck: &StuckStart,
) -> Option<(StuckStart, Timestamp)> {
    if let Some(since) = ctx.world.records.unconfigured_since.filter(|since| made_at < *since)
        && has_begun(ctx, pod, tries)
        && !tries
            .iter()
            .any(|row| row.network.is_host || attachments(ctx, row).iter().any(|it| !it.is_loopback()))
    {
        let it = StuckStart {
            cause: Some(StartCause::NotConfigured),
            config_file: undecodable(ctx),
            ..stuck.clone()
        };
        return Some((it, since));
    }
    let (since, stop) = not_called(ctx, tries)?;
    let it = StuckStart {
        cause: Some(StartCause::PluginNotCalled),
        plugin: Some(stop.plugin),
        network: stop.network,
        folders: ctx.world.records.plugin_folders(),
        addresses: stop.addresses,
        ..stuck.clone()
    };
    Some((it, since))
}

/// Whether the runtime has begun a sandbox of the pod.
pub(super) fn has_begun(ctx: &DetectContext<'_>, pod: &Pod, tries: &[&Sandbox]) -> bool {
    !tries.is_empty() || pod.named.uid.as_ref().is_some_and(|uid| ctx.pod_has_record(uid) == HasRecord::Yes)
}

/// Where the runtime gave up a chain although no ADD of it failed. There is none if the runtime itself ended
/// meanwhile.
struct ChainStop {
    network: Option<String>,
    /// The plugin that it did not call.
    plugin: String,
    /// The addresses that the earlier plugins gave and that are still held.
    addresses: Vec<IpAddr>,
}

/// Returns the plugin that the runtime does not call, and since when: the latest tries have this in common.
fn not_called(ctx: &DetectContext<'_>, tries: &[&Sandbox]) -> Option<(Timestamp, ChainStop)> {
    let (newest, earlier) = tries.split_last()?;
    let mut newest_stop = chain_stop(ctx, newest, false).map(|stop| (newest.first_at, stop));
    // The newest try may be under way. Then those before it show the cause, unless it has come further.
    let is_under_way = newest_stop.is_none() && !newest.is_stopped();
    if newest_stop.is_none() && !is_under_way {
        return None;
    }
    let mut stops = earlier.iter().rev().map_while(|row| Some((row.first_at, chain_stop(ctx, row, true)?)));
    let (mut since, mut stop) = newest_stop.take().or_else(|| stops.next())?;
    if is_under_way && is_called(ctx, newest, &stop.plugin) {
        return None;
    }
    for (at, other) in stops {
        if other.plugin != stop.plugin {
            break;
        }
        since = at;
        stop.addresses.extend(other.addresses);
    }
    stop.addresses.sort_unstable();
    stop.addresses.dedup();
    Some((since, stop))
}

/// Returns where the runtime gave up the chain of a sandbox. `is_followed`: the runtime has begun another
/// sandbox of the pod since.
fn chain_stop(ctx: &DetectContext<'_>, row: &Sandbox, is_followed: bool) -> Option<ChainStop> {
    let all = attachments(ctx, row);
    let last_at = last_call(ctx, row)?;
    let is_given_up = row.is_stopped() || is_followed;
    if !is_given_up && ctx.now < last_at + NEXT || all.iter().any(|it| !it.is_added()) {
        return None;
    }
    // If the runtime that called the plugins has ended, the chain ended with it.
    if lookup::daemons::runtimes_turned_at(ctx.world).is_none_or(|at| last_at < at) {
        return None;
    }
    let networks = ctx.world.records.networks();
    let attached = all.iter().find(|it| !it.is_loopback());
    let network = match attached {
        Some(it) => ctx.world.records.network(it)?,
        // The runtime calls the loopback plugin and the first plugin of the network at the same time.
        None => match networks {
            [only] => only,
            [] | [_, ..] => return None,
        },
    };
    let next = network.called().find(|name| !is_called(ctx, row, name));
    let (network, plugin) = match next {
        Some(plugin) => (Some(network.name.clone()), plugin.clone()),
        None if is_given_up && lacks_loopback(ctx, row) => (None, LOOPBACK.to_owned()),
        None => return None,
    };
    let mut addresses = Vec::new();
    if is_given_up && let Some(attached) = attached {
        addresses.extend(attached.leases.iter().filter(|it| it.is_on_record()).map(|it| it.address));
    }
    Some(ChainStop { network, plugin, addresses })
}

fn is_called(ctx: &DetectContext<'_>, row: &Sandbox, plugin: &str) -> bool {
    let mut all = ctx.world.attachments.of(&row.id).flat_map(|it| &it.plugins);
    all.any(|it| it.name == plugin && it.add.begun > 0)
}

/// Whether a sandbox was given up because the runtime calls `loopback` and does not find it. The runtime
/// could not call that plugin's DEL either, and so called no DEL at all. A runtime that sets up the interface
/// by itself makes sandboxes without that plugin.
fn lacks_loopback(ctx: &DetectContext<'_>, row: &Sandbox) -> bool {
    !lookup::daemons::has_crio(ctx.world)
        && ctx.world.records.no_loopback_since.is_none()
        && row.up_since.is_none()
        && !ctx.world.attachments.of(&row.id).any(|it| it.is_loopback() || it.has_begun_del())
}

impl Explain for StuckStart {
    fn summary(&self) -> String {
        let mut text = self.seen();
        text.push_str(&quotation(&self.said));
        text
    }

    fn cause(&self) -> &'static str {
        match (self.cause, self.step) {
            (Some(StartCause::PluginNotCalled), _) => {
                "The runtime gives up the network without a call of this plugin, and no plugin failed. Its executable is \
                 mostly missing from the folder of CNI plugins. The runtime cannot call its DEL either, so it calls no DEL \
                 of the other plugins, and the addresses that they gave stay allocated. The pod stays ContainerCreating."
            }
            (Some(StartCause::NotConfigured), _) => {
                "The runtime has no CNI configuration that it can load, so it makes no network: the node is NotReady \
                 (NetworkReady=false), pods stay ContainerCreating or Pending, and pods that end stay Terminating."
            }
            (None, _) if !self.said.is_empty() => {
                "The program that is quoted reports an error about the pod, and tries again by itself. If it was logged for each \
                 try, the start waits for that."
            }
            (None, StartStep::Sandbox) if self.sandboxes > 0 => {
                "The runtime has begun sandboxes for the pod, and has given up each of them. An ADD that failed is told as \
                 cni_failing. If none failed, the runtime ended meanwhile, or it refused what a plugin had printed: then \
                 the plugin ended with 0, and only the log of the runtime says what was wrong."
            }
            (None, StartStep::Sandbox) if self.config_file.is_some() => {
                "The kubelet has made the pod's cgroup, and nothing shows that the runtime began a sandbox. Either the kubelet \
                 waits for a volume, a Secret or a ConfigMap, or RunPodSandbox fails because the runtime has no CNI \
                 configuration that it can load."
            }
            (None, StartStep::Sandbox) => {
                "The kubelet has made the pod's cgroup, and the runtime has made no sandbox. The kubelet waits for a volume, a \
                 Secret or a ConfigMap, or RunPodSandbox fails before it makes a network."
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
                let mut all = look_for_plugin(self.plugin.as_deref(), &self.folders);
                all.extend(cni_in_journal());
                all
            }
            (Some(StartCause::NotConfigured), file) => look_for_configuration(file.as_deref(), None),
            (None, _) if !self.said.is_empty() => lines(&[REPAIR_WHAT_IS_SAID]),
            (None, _) => {
                let mut all = kubelet_in_journal();
                all.extend(self.unsaid.as_deref().map(nothing_said));
                if self.step == StartStep::Sandbox && self.sandboxes > 0 {
                    all.extend(cni_in_journal());
                }
                all
            }
        }
    }

    fn said(&self) -> &[Said] {
        &self.said
    }

    fn forget_numbers(&mut self) {
        self.sandboxes = 0;
        self.folders.clear();
        forget_times(&mut self.said);
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn named(&self) -> Vec<Thing<'_>> {
        self.addresses.iter().copied().map(Thing::Address).collect()
    }
}

impl StuckStart {
    /// Returns what the kernel and the node's files show.
    fn seen(&self) -> String {
        let tries = counted(self.sandboxes.into(), "sandbox");
        let plugin = self.plugin.as_deref().map(escaped);
        match (self.cause, self.step) {
            (Some(StartCause::PluginNotCalled), _) => {
                let plugin = plugin.unwrap_or_default();
                let network = self.network.as_deref().map(escaped);
                let of_network = network.map(|name| format!(" of the network {name}")).unwrap_or_default();
                let mut text =
                    format!("no network after {tries}: the plugin {plugin}{of_network} is not called");
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
                let mut text = match self.sandboxes {
                    0 => "no container has run, and the runtime has begun no sandbox".to_owned(),
                    _ => format!("no container has run, and there is no sandbox after {tries}"),
                };
                if let Some(path) = &self.config_file {
                    _ = write!(text, "; the CNI configuration {} cannot be decoded", escaped(path));
                }
                text
            }
            (None, StartStep::Network) => match plugin {
                Some(plugin) => format!("the sandbox is not ready: ADD of {plugin} does not end"),
                None => "the sandbox is not ready, and no CNI call is open".to_owned(),
            },
            (None, StartStep::Container) => "the sandbox is ready, and no container has run".to_owned(),
        }
    }
}
