//! **Rule:** containers of at least three pods were ended at about the same time, and each was started again.
//! One of these ended them:
//!
//! * A runtime or a kubelet started, and within two minutes the runtime began to end containers that were
//!   older than that start, in at least half of the sandboxes that ran a container then. The same sandboxes
//!   ran containers of the same names afterwards.
//! * One process that does not work for a runtime sent them SIGKILL or SIGTERM, each at most a minute
//!   after the one before. The same sandbox ran a container of the same name afterwards, or the pod got
//!   another sandbox.
//!
//! A restart of a few containers after a daemon's start is ordinary: a probe fails, or an image was changed.
//! Half of the node is not. A process that kills in one or two pods may be a person at work.
//!
//! Not flagged: containers that end by themselves or by the OOM killer, as in a crash loop; a rollout, a
//! drain, an eviction or a batch that ends, since these pods do not go on; a restart that keeps the
//! containers; a reboot, since no container is older; sandboxes that are replaced (`sandboxes_replaced`).
//!
//! It is about the past, which no repair undoes, and closes after a while. It rests only on records that were
//! seen: those that were lost may hide it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use probe_common::runtime;

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        lookup,
        table::sandbox::{
            LastStarted, Sandbox,
            run::{ContainerRun, EndedBy},
        },
    },
    model::{
        fact::PodName,
        finding::{Explain, RestartedInBulk, Severity},
        id::{ContainerId, PodUid, TaskKey},
        process::Process,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{in_journal, in_unit, lines},
        span::span,
    },
};

/// How long the finding stays open after the last of these ends.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(10 * 60);

/// The finding waits this long for further ends, so that it is confirmed with their count. Ends by one
/// process that are further apart belong to two findings.
pub(super) const SETTLE: Duration = Duration::from_secs(60);

/// Fewer pods are not many.
pub(super) const PODS: usize = 3;

/// At most this many pods are named, and their sandboxes shown as evidence.
const SHOWN: usize = 16;

/// systemd's OOM daemon.
const OOMD: &str = "systemd-oomd";

/// A container that was ended and started again.
#[derive(Debug, PartialEq)]
pub(super) struct Restarted {
    by: EndedBy,
    /// When its end began.
    at: Timestamp,
    uid: PodUid,
    pod: PodName,
    sandbox: ContainerId,
}

impl Restarted {
    /// Until then it counts. Its group is over before the first of it is forgotten, unless the group lasts
    /// very long.
    fn until(&self) -> Timestamp {
        self.at + AFTERWARDS * 2
    }
}

impl Part for Restarted {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.until())
    }

    fn makes_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Rule for RestartedInBulk {
    type Subject = PodUid;
    type Part = Restarted;
    const SUBJECTS: Subjects<PodUid> = Subjects::UIDS;

    fn judge(ctx: &DetectContext<'_>, uid: &PodUid, found: &mut Vec<Restarted>) {
        for row in sandboxes(ctx, uid) {
            let all = row.containers().iter().filter_map(|ran| restarted(ctx, uid, row, ran));
            found.extend(all.filter(|it| ctx.now < it.until()));
        }
    }
}

/// The sandboxes of a pod.
fn sandboxes<'a>(ctx: &DetectContext<'a>, uid: &PodUid) -> impl Iterator<Item = &'a Sandbox> {
    let all = &ctx.world.sandboxes;
    ctx.index.uids.by(uid).filter_map(move |id| all.recall(id))
}

fn restarted(ctx: &DetectContext<'_>, uid: &PodUid, row: &Sandbox, ran: &ContainerRun) -> Option<Restarted> {
    let ended = ran.ended?;
    let by = ran.ended_by.as_ref()?;
    let is_again = ran.name.is_some()
        && row.containers().iter().any(|next| next.name == ran.name && next.started_at >= ended.at);
    let is_restarted = match by {
        EndedBy::Daemon(daemon) => is_again && ran.started_at < daemon.at,
        EndedBy::Process(_) => {
            is_again
                || sandboxes(ctx, uid).any(|after| {
                    after.first_at > ended.at && !lookup::sandbox::is_of_later_pod(ctx.world, row, after)
                })
        }
    };
    is_restarted.then(|| Restarted {
        by: by.clone(),
        at: ended.stopped_at.unwrap_or(ended.at),
        uid: uid.clone(),
        pod: row.reported.pod.clone(),
        sandbox: row.id.clone(),
    })
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<RestartedInBulk>, found: &mut Vec<Detection>) {
    let mut daemons: BTreeMap<(&str, Timestamp), Vec<&Restarted>> = BTreeMap::new();
    let mut processes: BTreeMap<(&str, TaskKey), Vec<&Restarted>> = BTreeMap::new();
    for it in judged.parts() {
        match &it.by {
            EndedBy::Daemon(daemon) => daemons.entry((&daemon.comm, daemon.at)).or_default().push(it),
            EndedBy::Process(process) => {
                processes.entry((&process.comm, process.key)).or_default().push(it);
            }
        }
    }
    // The last one of each name counts.
    let mut last: BTreeMap<(bool, &str), Detection> = BTreeMap::new();
    for ((comm, at), mut all) in daemons {
        if pods(&all) * 2 >= running(ctx, at) {
            last.extend(detection(ctx, &mut all).map(|it| ((false, comm), it)));
        }
    }
    for ((comm, _), mut all) in processes {
        all.sort_by_key(|it| it.at);
        for group in all.chunk_by_mut(|one, next| next.at <= one.at + SETTLE) {
            let Some(it) = detection(ctx, group) else { continue };
            let is_later = last.get(&(true, comm)).is_none_or(|known| it.since >= known.since);
            if is_later {
                last.insert((true, comm), it);
            }
        }
    }
    found.extend(last.into_values());
}

/// The number of pods.
fn pods(all: &[&Restarted]) -> usize {
    all.iter().map(|it| &it.uid).collect::<BTreeSet<_>>().len()
}

/// The number of sandboxes that ran a container at this time, of those whose programs the node sees.
fn running(ctx: &DetectContext<'_>, at: Timestamp) -> usize {
    let all = ctx.world.sandboxes.all().filter(|row| !row.hides_programs);
    let ran = all.filter(|row| {
        let mut runs = row.containers().iter();
        runs.any(|ran| ran.started_at < at && ran.ended.is_none_or(|ended| ended.at >= at))
    });
    ran.count()
}

fn detection(ctx: &DetectContext<'_>, all: &mut [&Restarted]) -> Option<Detection> {
    all.sort_by_key(|it| (it.at, &it.sandbox));
    let (first, last) = all.first().zip(all.last())?;
    let until = last.at + AFTERWARDS;
    let count = pods(all);
    if count < PODS || ctx.now >= until {
        return None;
    }
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for it in all.iter() {
        if sandboxes.len() < SHOWN && !sandboxes.contains(&it.sandbox) {
            sandboxes.push(it.sandbox.clone());
            let name = it.pod.namespace.as_ref().zip(it.pod.name.as_ref());
            let name = name.map(|(namespace, name)| format!("{namespace}/{name}"));
            names.extend(name.filter(|name| !names.contains(name)));
        }
    }
    let kind = RestartedInBulk {
        containers: u32::try_from(all.len()).unwrap_or(u32::MAX),
        count: u32::try_from(count).unwrap_or(u32::MAX),
        lasted: last.at.since(first.at),
        first: names,
        ..blamed(ctx, &first.by)
    };
    let parts = match &first.by {
        EndedBy::Daemon(daemon) => vec![daemon.comm.as_str()],
        EndedBy::Process(process) => vec!["killer", process.comm.as_str()],
    };
    let settled = last.at + SETTLE;
    let verdict = if ctx.now < settled {
        Verdict::Candidate { until: Some(settled) }
    } else {
        Verdict::Passing { until }
    };
    Some(Detection { sandboxes, ..Detection::new(kind, &parts, Severity::Warning, first.at, verdict) })
}

/// Returns who ended them, without what was ended.
fn blamed(ctx: &DetectContext<'_>, by: &EndedBy) -> RestartedInBulk {
    let mut it = RestartedInBulk {
        daemon: None,
        was: None,
        is: None,
        killer: None,
        containers: 0,
        count: 0,
        lasted: Duration::ZERO,
        first: Vec::new(),
    };
    match by {
        EndedBy::Process(process) => it.killer = Some(process.clone()),
        EndedBy::Daemon(daemon @ LastStarted { comm, .. }) => {
            it.daemon = Some(comm.clone());
            let restart = lookup::restart::ended_by(ctx.world, daemon);
            let programs = restart.and_then(|it| Some((&it.was, it.is.as_ref()?)));
            // The name alone is that of a program whose version is not known.
            if let Some((was, is)) = programs
                && was != is
                && was != comm
                && is != comm
            {
                (it.was, it.is) = (Some(was.clone()), Some(is.clone()));
            }
        }
    }
    it
}

impl RestartedInBulk {
    fn is_by_kubelet(&self) -> bool {
        runtime::kubelets().any(|kubelet| self.daemon.as_deref() == Some(kubelet))
    }

    fn is_by(&self, is_it: fn(&Process) -> bool) -> bool {
        self.killer.as_ref().is_some_and(is_it)
    }
}

impl Explain for RestartedInBulk {
    fn summary(&self) -> String {
        let what = format!(
            "{} of {}",
            counted(self.containers.into(), "container"),
            counted(self.count.into(), "pod")
        );
        let within = span(self.lasted);
        if let Some(by) = &self.killer {
            let by = format!("{}[{}]", escaped(&by.comm), by.key.pid);
            return format!("{by} ended {what} within {within}, and they were started again");
        }
        let versions = match (&self.was, &self.is) {
            (Some(was), Some(is)) => format!(" ({} before, {} now)", escaped(was), escaped(is)),
            (None, _) | (_, None) => String::new(),
        };
        let daemon = escaped(self.daemon.as_deref().unwrap_or_default());
        format!("{what} were restarted in their sandboxes within {within}, after {daemon} started{versions}")
    }

    fn cause(&self) -> &'static str {
        if self.is_by_kubelet() && self.was.is_none() {
            "The kubelet had just started, and no other version of it is known from before. Its log says why each container \
             was ended. If the runtime started shortly before, its unit may have killed the containers' shims."
        } else if self.is_by_kubelet() {
            "The kubelet had just started, and took the containers for changed: it compares a hash of each container's \
             spec with the one that the runtime keeps from the container's start. Versions of the kubelet differ in \
             how they make it (1.31 does from 1.30)."
        } else if self.daemon.is_some() {
            "The runtime had just started, and ended containers though their sandboxes stayed: it could not take them up \
             again, as when the end of its unit had killed their shims or monitors too (KillMode)."
        } else if self.is_by(|it| it.comm == OOMD) {
            "systemd-oomd ends whole cgroups when memory pressure or the use of swap passes its limits, and the pods' slices \
             are among those that it watches. It knows neither requests nor priorities of pods."
        } else if self.is_by(|it| it.key.pid == 1) {
            "PID 1 ends all processes of a unit that is stopped, and of one with OOMPolicy=stop or kill in which the OOM \
             killer chose a process. The containers' cgroups were in such a unit."
        } else {
            "One process, which does not work for the runtime, sent the signals that ended the containers. The kubelet \
             started them again, as their restartPolicy says."
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = lines(&["# The containers run again. Why they were ended:"]);
        if self.is_by_kubelet() && self.was.is_none() {
            all.push(in_journal("-e shim -e 'will be restarted'"));
        } else if self.is_by_kubelet() {
            all.push(in_journal("'will be restarted'"));
            all.extend(lines(&[
                "# Drain the node before the next upgrade of the kubelet: Kubernetes supports no upgrade to another minor",
                "# version beside running pods.",
            ]));
        } else if let Some(daemon) = &self.daemon {
            all.push(in_journal("-e shim -e monitor -e conmon -e 'will be restarted'"));
            all.push(
                "# Its unit must end the daemon alone. KillMode=process and Delegate=yes do that:".to_owned(),
            );
            all.push(in_unit(daemon));
        } else if self.is_by(|it| it.comm == OOMD) {
            all.extend(lines(&[
                "journalctl -u systemd-oomd --since -30min --no-pager",
                "# The cgroups that it watches. Those of pods should not be among them: the kubelet evicts by itself.",
                "oomctl",
                "systemctl show -p ManagedOOMMemoryPressure -p ManagedOOMSwap -- -.slice kubepods.slice",
            ]));
        } else if self.is_by(|it| it.key.pid == 1) {
            all.extend(lines(&[
                "journalctl _PID=1 --since -30min --no-pager | grep -i -e oom -e stopp -e kill",
                "systemctl show -p OOMPolicy -- kubepods.slice 'cri-containerd-*.scope' 'crio-*.scope'",
            ]));
        } else if let Some(by) = &self.killer {
            let pid = by.key.pid;
            let parent = by.parent.pid;
            // 0 if it is not known.
            let (also, its) = match parent {
                0 => (String::new(), String::new()),
                _ => (format!(",{parent}"), format!(" /proc/{parent}/cgroup")),
            };
            all.extend([
                format!("journalctl _PID={pid} --since -30min --no-pager"),
                "# It and the process that started it, if they still run, and in which unit or pod:"
                    .to_owned(),
                format!("ps -o pid,ppid,lstart,args -p {pid}{also}; cat /proc/{pid}/cgroup{its}"),
            ]);
        }
        all
    }

    fn forget_numbers(&mut self) {
        (self.containers, self.count) = (0, 0);
        self.lasted = Duration::ZERO;
        self.first.clear();
    }

    fn shows_some(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::model::{
        finding::{Explain as _, RestartedInBulk},
        id::TaskKey,
        process::Process,
    };

    fn bulk(daemon: Option<&str>, killer: Option<(u32, &str)>) -> RestartedInBulk {
        RestartedInBulk {
            daemon: daemon.map(str::to_owned),
            was: daemon.map(|daemon| format!("{daemon} v1.30.8")),
            is: daemon.map(|daemon| format!("{daemon} v1.31.4")),
            killer: killer.map(|(pid, comm)| Process {
                key: TaskKey::new(pid, 7),
                comm: comm.to_owned(),
                ..Process::default()
            }),
            containers: 4,
            count: 3,
            lasted: Duration::from_secs(6),
            first: Vec::new(),
        }
    }

    #[test]
    fn the_summary_says_who_restarted_how_many() {
        assert_eq!(
            bulk(Some("kubelet"), None).summary(),
            "4 containers of 3 pods were restarted in their sandboxes within 6.00 s, after kubelet started (kubelet v1.30.8 \
             before, kubelet v1.31.4 now)"
        );
        assert_eq!(
            bulk(None, Some((812, "systemd-oomd"))).summary(),
            "systemd-oomd[812] ended 4 containers of 3 pods within 6.00 s, and they were started again"
        );
    }

    /// Each has a cause and a repair of its own.
    #[test]
    fn the_repair_fits_who_did_it() {
        for (it, cause, command) in [
            (bulk(Some("k3s-agent"), None), "took the containers for changed", "'will be restarted'"),
            (bulk(Some("containerd"), None), "KillMode", "-p KillMode -p Delegate containerd"),
            (bulk(Some("crio"), None), "KillMode", "-p KillMode -p Delegate crio"),
            (bulk(None, Some((812, "systemd-oomd"))), "systemd-oomd ends whole cgroups", "oomctl"),
            (bulk(None, Some((1, "systemd"))), "OOMPolicy", "systemctl show -p OOMPolicy"),
            (bulk(None, Some((900, "pkill"))), "One process", "cat /proc/900/cgroup"),
        ] {
            assert!(it.cause().contains(cause), "{}", it.cause());
            let repair = it.repair(&[], &[]).join("\n");
            assert!(repair.contains(command), "{repair}");
        }
    }
}
