//! **Rule:** a runtime or a kubelet of the node has failed three times, each time within a minute of its
//! start and within ten minutes of the time before, and none has come up since. It is confirmed a minute
//! after the first of these starts, and not while a process runs for longer than those that failed lived:
//! that one may come up.
//!
//! It failed if it ended with another code than 0, or by a signal that nobody sent to it.
//!
//! So does each container of a pod on the host's network that has the name of a CNI plugin's
//! DaemonSet. An init container has also come up if it ended with code 0.
//!
//! A runtime or a kubelet that had come up is down if it ended, whatever the reason, and none of its name has
//! run for two minutes since; a runtime only while a kubelet runs and no other runtime serves the pods. The
//! node must have pods.
//!
//! Not flagged: a daemon that somebody stops or kills, however often, and that is started again; a program
//! that is asked for something (`crio status`) or ends with success; one whose name has another process that
//! has come up; a process in a container; one of which only some ends were seen.
//!
//! It is critical where the node has pods.

use std::{collections::BTreeSet, time::Duration};

use super::{DetectContext, Detection, Verdict, words::LEAD};
use crate::{
    engine::world::{
        lookup,
        plugin_pods::{daemon_set, plugins_of},
        table::{
            failing::{FAILED, Failing, UP},
            sandbox::{
                Group, Sandbox,
                run::{ContainerRun, SIGNALLED},
            },
        },
    },
    model::{
        fact::{PodName, Said},
        finding::{DaemonFailing, Explain, FindingKind, Key, Severity},
        id::ContainerId,
        process::End,
        recovery::Restart,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        name::signal_number,
        said::{forget_times, nothing_said, quotation},
        shell::{quoted, unit_commands},
        span::span,
    },
};

/// The kubelet's folder of the containers' logs.
const POD_LOGS: &str = "/var/log/pods/";

/// The signals of Linux.
const SIGNALS: u32 = 64;

/// How long the finding stays open if nobody starts the daemon any more, as when systemd has given up.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(60 * 60);

/// How long a daemon may be down. A restart by an upgrade takes seconds.
pub(super) const DOWN: Duration = Duration::from_secs(2 * 60);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.failing.values() {
        let key = Key::new(FindingKind::DaemonFailing.into_str(), &[&row.comm]);
        found.extend(failing(ctx, key, row, runs_since(ctx, row), None));
    }
    for restart in lookup::daemons::down(ctx.world) {
        let key = Key::new(FindingKind::DaemonFailing.into_str(), &[&restart.comm]);
        if !found.iter().any(|it| it.key == key) {
            found.extend(down(ctx, key, restart));
        }
    }
    for sandbox in ctx.world.sandboxes.group(Group::Host).filter(|row| !row.is_stopped()) {
        detect_in_plugin_pod(ctx, sandbox, found);
    }
}

/// Returns the finding about a daemon that nobody has started again.
fn down(ctx: &DetectContext<'_>, key: Key, restart: &Restart) -> Option<Detection> {
    if !ctx.world.pods.values().any(|pod| pod.is_present()) {
        return None;
    }
    let ended = restart.ended_again.as_ref().or(restart.ended.as_ref());
    let since = ended.map_or(restart.noticed_at, |it| it.at);
    let ready = ctx.awake(since) + DOWN;
    let is_ready = ctx.now >= ready;
    let end = ended.map(|it| it.end.clone()).unwrap_or_default();
    let told = ended.and_then(|it| it.told.clone());
    let kind = DaemonFailing {
        daemon: restart.comm.clone(),
        plugins: Vec::new(),
        plugin_pod: None,
        count: 1,
        lasted: since.since(restart.ran_since),
        down: true,
        signal: end.signal.or(told.as_ref().map(|it| it.signal)),
        killer: told.map(|it| it.by).or(end.killer),
        exit_code: end.code,
        oom: end.oom,
        said: Vec::new(),
        unsaid: None,
    };
    let verdict = if is_ready { Verdict::Confirmed } else { Verdict::Watched { until: Some(ready) } };
    Some(Detection::keyed(key, kind, Severity::Critical, since, verdict))
}

/// Finds the containers of a CNI plugin's pod that do not come up.
fn detect_in_plugin_pod(ctx: &DetectContext<'_>, sandbox: &Sandbox, found: &mut Vec<Detection>) {
    let Some(pod) = sandbox.pod.and_then(|id| ctx.world.pods.get(&id)) else { return };
    let plugins = plugins_of(&pod.named);
    let Some(uid) = &pod.named.uid else { return };
    if plugins.is_empty() {
        return;
    }
    let names: BTreeSet<&str> =
        sandbox.work.containers.iter().filter_map(|run| run.name.as_deref()).collect();
    for name in names {
        let runs = sandbox.work.containers.iter().filter(|run| run.name.as_deref() == Some(name));
        let Some((mut row, runs_since)) = failing_container(name, runs) else { continue };
        let key = Key::new(FindingKind::DaemonFailing.into_str(), &[uid.as_str(), name]);
        // The first runs of a long loop are forgotten.
        let since = ctx.open_finding(&key).map_or(row.since, |open| open.since.min(row.since));
        row.words = pod.words.clone().filter(|words| words.since >= since);
        if let Some(words) = &mut row.words {
            // The pod's other containers may have been asked about too.
            let own = format!("/{name}/");
            words.said.retain(|it| !it.source.starts_with(POD_LOGS) || it.source.contains(&own));
        }
        found.extend(failing(ctx, key, &row, runs_since, Some((&pod.named, plugins))));
    }
}

/// Returns how often the containers of one name have failed since one of them came up, and since when the
/// last one runs. `runs`: in their order.
fn failing_container<'a>(
    name: &str,
    runs: impl Iterator<Item = &'a ContainerRun>,
) -> Option<(Failing, Option<Timestamp>)> {
    let mut failing: Option<Failing> = None;
    let mut runs_since = None;
    for run in runs {
        let Some(ended) = run.ended else {
            runs_since = Some(run.started_at);
            continue;
        };
        runs_since = None;
        let lived = ended.at.since(run.started_at);
        if lived >= UP || ended.code == Some(0) {
            failing = None;
            continue;
        }
        let (Some(code), None, false) = (ended.code, ended.stopped_at, run.listed) else { continue };
        // A program that exits with -1 has the code 255.
        let signal = code.checked_sub(SIGNALLED).filter(|signal| (1..=SIGNALS).contains(signal));
        let end = End { code, signal, killer: None, oom: ended.oom };
        failing = Some(Failing::after(failing, name, run.started_at, ended.at, end));
    }
    Some((failing?, runs_since))
}

/// Returns since when the earliest process of this name runs.
fn runs_since(ctx: &DetectContext<'_>, row: &Failing) -> Option<Timestamp> {
    let running = lookup::daemons::named(ctx.world, |comm| comm == row.comm);
    running.filter(|it| !it.program.is_query).map(|it| Timestamp(it.key.start)).min()
}

/// Returns the finding about a daemon or a container that has failed more than once.
///
/// `of`: the pod of which it is a container, and the plugins that need that pod.
fn failing(
    ctx: &DetectContext<'_>,
    key: Key,
    row: &Failing,
    runs_since: Option<Timestamp>,
    of: Option<(&PodName, &[&str])>,
) -> Option<Detection> {
    let over_at = row.last_at + AFTERWARDS;
    let over_at = runs_since.map_or(over_at, |since| over_at.min(since + UP));
    if row.count < 2 || ctx.now >= over_at {
        return None;
    }
    let verdict = match ready(ctx, row, runs_since) {
        _ if ctx.open_finding(&key).is_some() => Verdict::Passing { until: over_at },
        Some(ready) if ctx.now >= ready => Verdict::Passing { until: over_at },
        ready => Verdict::Watched { until: Some(ready.map_or(over_at, |ready| ready.min(over_at))) },
    };
    // The sandboxes that exist need no plugin.
    let serves = of.is_none() && lookup::daemons::serves_pods(ctx.world, &row.comm);
    let has_pods = ctx.world.pods.values().any(|pod| pod.is_present());
    let words = row.words.as_ref();
    let (said, unsaid) = words.map(|it| (it.said.clone(), it.unsaid.clone())).unwrap_or_default();
    let (pod, plugins) = of.unzip();
    let kind = DaemonFailing {
        daemon: row.comm.clone(),
        plugins: plugins.unwrap_or_default().iter().map(|name| (*name).to_owned()).collect(),
        plugin_pod: pod.and_then(PodName::full),
        count: row.count,
        lasted: row.last_at.since(row.since),
        down: false,
        killer: None,
        exit_code: row.last.code,
        signal: row.last.signal,
        oom: row.last.oom,
        said,
        unsaid,
    };
    let severity = if serves && has_pods { Severity::Critical } else { Severity::Warning };
    Some(Detection { pod: pod.cloned(), ..Detection::keyed(key, kind, severity, row.since, verdict) })
}

/// Returns when it is confirmed; none if it may come up.
fn ready(ctx: &DetectContext<'_>, row: &Failing, runs_since: Option<Timestamp>) -> Option<Timestamp> {
    let many_at = row.many_at?;
    if runs_since.is_some_and(|since| ctx.now >= since + row.longest) {
        return None;
    }
    let ready = many_at.max(row.since + UP);
    // Until then the logs are searched.
    let is_searched = row.words.as_ref().is_some_and(|it| !it.said.is_empty() || it.unsaid.is_some());
    Some(if is_searched { ready } else { ready.max(many_at + LEAD) })
}

impl DaemonFailing {
    /// Says how a daemon ended that is down.
    fn how_it_ended(&self) -> String {
        if self.oom {
            return "the OOM killer ended it".to_owned();
        }
        match (self.signal, &self.killer) {
            (Some(signal), Some(killer)) => {
                let signal = signal_number(signal).unwrap_or("a signal");
                format!("{signal} from {}[{}] ended it", escaped(&killer.comm), killer.key.pid)
            }
            (Some(signal), None) => format!("signal {signal} ended it"),
            (None, _) if self.exit_code == 0 => "it ended, with success or unseen".to_owned(),
            (None, _) => format!("it ended with exit code {}", self.exit_code),
        }
    }

    /// Returns what it said about its end. Who is killed or crashes says nothing about that.
    fn last_words(&self) -> &[Said] {
        if self.signal.is_some() || self.oom { &[] } else { &self.said }
    }
}

impl Explain for DaemonFailing {
    fn summary(&self) -> String {
        let mut daemon = escaped(&self.daemon);
        if self.down {
            return format!(
                "{daemon} does not run, and nobody has started it again: {}",
                self.how_it_ended()
            );
        }
        if let Some(pod) = &self.plugin_pod {
            let plugin = self.plugins.first().map(String::as_str).unwrap_or_default();
            daemon = format!("{daemon} in {}, which the CNI plugin {plugin} needs,", escaped(pod)).into();
        }
        let (count, lasted) = (counted(self.count.into(), "time"), span(self.lasted));
        let how = match self.signal {
            _ if self.oom => "by the OOM killer".to_owned(),
            Some(signal) => format!("by signal {signal}"),
            None => format!("with exit code {}", self.exit_code),
        };
        format!(
            "{daemon} does not come up: it failed {count} in {lasted}, the last time {how}{}",
            quotation(self.last_words())
        )
    }

    fn cause(&self) -> &'static str {
        if self.down {
            return if self.oom {
                "The kernel's OOM killer ended the daemon, and its supervisor has not started it again. Pods that run go on; \
                 none can start or stop."
            } else if self.killer.is_some() {
                "A process told the daemon to end, on purpose or by mistake, and nobody has started it again. Pods that run go \
                 on; none can start or stop."
            } else {
                "The daemon ended, and its supervisor has not started it again: the unit's Restart= does not hold for such an \
                 end, or its start limit is reached. Pods that run go on; none can start or stop."
            };
        }
        if !self.plugins.is_empty() {
            return if self.oom {
                "The kernel's OOM killer ends the container soon after each start: its memory limit is too small for it. \
                 Pods that run keep their network; ADD and DEL of the plugin fail, or wait."
            } else if self.signal.is_some() {
                "The container crashes soon after each start. Pods that run keep their network; ADD and DEL of the plugin \
                 fail, or wait."
            } else {
                "The container finds something at its start without which it does not go on, says so, and ends. The kubelet \
                 starts it again, each time later, up to five minutes. Pods that run keep their network; ADD and DEL of the \
                 plugin fail, or wait."
            };
        }
        if self.oom {
            "The kernel's OOM killer ends the daemon soon after each start: its memory limit, or the node's memory, is too \
             small for it. Pods that run go on; none can start or stop."
        } else if self.signal.is_some() {
            "The daemon crashes soon after each start. Pods that run go on; none can start or stop."
        } else {
            "The daemon finds something at its start without which it does not go on, says so, and ends. Its supervisor \
             starts it again, until it gives up. Pods that run go on; none can start or stop."
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        if self.down {
            let start = "Start it, unless somebody stopped it for a reason. Containers run on.";
            return unit_commands(&self.daemon, start);
        }
        let mut all = Vec::new();
        if !self.last_words().is_empty() {
            all.push("# Repair what the words name with which it ended.".to_owned());
        } else if let Some(unsaid) = &self.unsaid {
            all.push(nothing_said(unsaid));
        }
        if let Some(pod) = &self.plugin_pod {
            all.extend(pod_commands(pod, &self.daemon, self.oom));
        } else {
            let start = "Once that is repaired, start it: systemd may have given up.";
            all.extend(unit_commands(&self.daemon, start));
        }
        all
    }

    fn said(&self) -> &[Said] {
        &self.said
    }

    fn forget_numbers(&mut self) {
        (self.count, self.lasted) = (FAILED, Duration::ZERO);
        forget_times(&mut self.said);
    }

    fn rests_on(&self, lasted: Duration) -> Option<String> {
        let daemon = escaped(&self.daemon);
        if self.down {
            return Some(format!(
                "the end of {daemon}, and no start of it in the {} after that",
                span(lasted)
            ));
        }
        let said = if self.said.is_empty() { "" } else { ", and what was said" };
        let ends = counted(self.count.into(), "process");
        Some(format!("the ends of {ends} of {daemon}, each soon after its start{said}"))
    }
}

/// Returns the commands for a container of a plugin's pod, where `kubectl` works. `pod`: NAMESPACE/NAME, as
/// the API server allows it.
fn pod_commands(pod: &str, container: &str, oom: bool) -> Vec<String> {
    let Some((namespace, name)) = pod.split_once('/') else { return Vec::new() };
    let (Some(namespace), Some(quoted_name), Some(container)) =
        (quoted(namespace), quoted(name), quoted(container))
    else {
        return Vec::new();
    };
    let mut all = vec!["# Where kubectl works: all that it said, before the last start.".to_owned()];
    all.push(format!("kubectl -n {namespace} logs {quoted_name} -c {container} --previous"));
    let owner = daemon_set(name).and_then(|(owner, _)| quoted(owner));
    if oom && let Some(owner) = owner {
        all.push("# Raise the container's memory limit:".to_owned());
        all.push(format!("kubectl -n {namespace} edit daemonset {owner}"));
    } else {
        all.push("# Once that is repaired, the kubelet need not wait to start it:".to_owned());
        all.push(format!("kubectl -n {namespace} delete pod {quoted_name}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DaemonFailing, Explain};
    use crate::model::{change::Process, id::TaskKey};

    #[test]
    fn how_a_container_of_a_plugins_pod_ends_is_said() {
        let mut it = DaemonFailing {
            daemon: "install-cni".to_owned(),
            plugins: vec!["calico".to_owned(), "calico-ipam".to_owned()],
            plugin_pod: Some("kube-system/calico-node-x2x7q".to_owned()),
            count: 4,
            lasted: Duration::from_secs(80),
            down: false,
            killer: None,
            exit_code: 1,
            signal: None,
            oom: false,
            said: Vec::new(),
            unsaid: Some("its log is empty".to_owned()),
        };
        assert_eq!(
            it.summary(),
            "install-cni in kube-system/calico-node-x2x7q, which the CNI plugin calico needs, does not come up: it \
             failed 4 times in 1m20s, the last time with exit code 1"
        );
        assert!(it.cause().contains("keep their network"), "{}", it.cause());
        let commands = [
            "kubectl -n 'kube-system' logs 'calico-node-x2x7q' -c 'install-cni' --previous",
            "kubectl -n 'kube-system' delete pod 'calico-node-x2x7q'",
        ];
        let repair = it.repair(&[], &[]);
        assert!(commands.iter().all(|command| repair.iter().any(|line| line == command)), "{repair:?}");

        (it.signal, it.oom) = (Some(9), true);
        assert!(it.cause().contains("memory limit"), "{}", it.cause());
        let repair = it.repair(&[], &[]);
        let edit = "kubectl -n 'kube-system' edit daemonset 'calico-node'";
        assert!(repair.iter().any(|line| line == edit), "{repair:?}");

        it.plugin_pod = Some("kube-system/\u{1b}[2J-x2x7q".to_owned());
        let repair = it.repair(&[], &[]);
        assert!(!repair.iter().any(|line| line.contains("kubectl")), "{repair:?}");
    }

    fn said(it: &DaemonFailing) -> String {
        let summary = it.summary();
        let how = summary.strip_prefix("containerd does not run, and nobody has started it again: ");
        how.expect("how it ended").to_owned()
    }

    #[test]
    fn how_a_daemon_that_is_down_ended_is_said() {
        let mut it = DaemonFailing {
            daemon: "containerd".to_owned(),
            plugins: Vec::new(),
            plugin_pod: None,
            count: 1,
            lasted: Duration::from_secs(80),
            down: true,
            killer: None,
            exit_code: 0,
            signal: None,
            oom: false,
            said: Vec::new(),
            unsaid: None,
        };
        assert_eq!(said(&it), "it ended, with success or unseen");
        it.exit_code = 2;
        assert_eq!(said(&it), "it ended with exit code 2");
        assert!(it.cause().contains("Restart="), "{}", it.cause());
        it.signal = Some(11);
        assert_eq!(said(&it), "signal 11 ended it");
        let key = TaskKey::new(77, 9);
        it.killer = Some(Process { key, comm: "systemd".to_owned(), ..Process::default() });
        it.signal = Some(15);
        assert_eq!(said(&it), "SIGTERM from systemd[77] ended it");
        assert!(it.cause().starts_with("A process told"), "{}", it.cause());
        it.oom = true;
        assert_eq!(said(&it), "the OOM killer ended it");
        assert!(it.repair(&[], &[]).iter().any(|line| line.ends_with("systemctl restart containerd")));
    }

    #[test]
    fn how_a_daemon_ends_is_said() {
        let unit = |unit: &str| format!("systemctl reset-failed {unit}; systemctl restart {unit}");
        for (daemon, exit_code, signal, oom, how, cause, start) in [
            ("kubelet", 1, None, false, "with exit code 1", "something at its start", unit("kubelet")),
            ("containerd", 139, Some(11), false, "by signal 11", "crashes", unit("containerd")),
            ("dockerd", 137, Some(9), true, "by the OOM killer", "memory", unit("docker")),
            ("cri-dockerd", 1, None, false, "with exit code 1", "says so", unit("cri-docker")),
            (
                "kubelite",
                1,
                None,
                false,
                "with exit code 1",
                "says so",
                unit("snap.microk8s.daemon-kubelite"),
            ),
            ("k3s-agent", 1, None, false, "with exit code 1", "says so", unit("k3s-agent")),
        ] {
            let it = DaemonFailing {
                daemon: daemon.to_owned(),
                plugins: Vec::new(),
                plugin_pod: None,
                count: 3,
                lasted: Duration::from_secs(9),
                down: false,
                killer: None,
                exit_code,
                signal,
                oom,
                said: Vec::new(),
                unsaid: Some("it is not in /var/log/journal".to_owned()),
            };
            let expected =
                format!("{daemon} does not come up: it failed 3 times in 9.00 s, the last time {how}");
            assert_eq!(it.summary(), expected);
            assert!(it.cause().contains(cause), "{}", it.cause());
            let repair = it.repair(&[], &[]);
            assert!(repair.contains(&start), "{repair:?}");
            assert!(repair[0].contains("it is not in /var/log/journal"), "{repair:?}");
        }
    }
}
