//! The kubelet's work on a node that boots. It starts the static pods first, then the other pods. It tries
//! each again after growing waits until the pod runs. At the end it removes what the boot before left.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::{SysconfVar, sysconf};
use sha2::{Digest as _, Sha256};

use super::{LATER, MANIFESTS, PODS, PodReport, REPORT, Report, Try, pods, write};
use crate::{
    clock,
    ftrace::{self, Event, Record, Trace},
    kubelet::{Driver, Kubelet, Pod, Step, timed},
    machine,
};

pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
/// The wait before the second try. Each wait is twice the one before.
const FIRST_GAP: Duration = Duration::from_secs(1);

/// Runs the kubelet, whose first instruction was at `began`.
pub fn run(began: u64) -> Result<()> {
    let driver = if Path::new("/run/systemd/system").exists() { Driver::Systemd } else { Driver::Cgroupfs };
    let mut kubelet = clock::poll("the runtime's sandboxes", machine::patience(), || {
        let mut kubelet = Kubelet::new(Path::new(SOCKET), driver).ok();
        Ok(kubelet.take_if(|kubelet| kubelet.cri().list_pod_sandbox().is_ok()))
    })?;
    let mut dead = kubelet.cri().list_pod_sandbox()?;
    let mut attempts = BTreeMap::new();
    for sandbox in dead.iter().filter_map(|sandbox| sandbox.metadata.as_ref()) {
        let next = attempts.entry(sandbox.uid.clone()).or_default();
        *next = (sandbox.attempt + 1).max(*next);
    }
    let trace = Trace::start(&[ftrace::EXECS])?;
    let mut work = Work { kubelet, attempts, done: Vec::new() };
    work.start_all(static_pods()?)?;
    work.start_all(pods(Path::new(PODS))?)?;
    if Path::new(LATER).exists() {
        work.start_all(pods(Path::new(LATER))?)?;
    }
    let trace = trace.end()?;
    let pods = work.done.into_iter().map(|pod| pod.report(&trace)).collect::<Result<_>>()?;
    let report = Report { forked: forked()?, began, pods };
    write(Path::new(REPORT), &serde_json::to_vec_pretty(&report)?)?;
    // A busy runtime may be unable to remove something now. Then it is tried again.
    loop {
        dead.retain(|sandbox| work.kubelet.remove_sandbox(&sandbox.id).is_err());
        if dead.is_empty() {
            thread::park();
        } else {
            thread::sleep(FIRST_GAP);
        }
    }
}

/// Returns the static pods. Their UIDs are hashes of their manifests, and their names end in the node's name.
fn static_pods() -> Result<Vec<Pod>> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").context("read the host's name")?;
    let named = |pod: Pod| -> Result<Pod> {
        let digest = Sha256::digest(serde_json::to_vec(&pod)?);
        let uid = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Pod { uid, name: format!("{}-{}", pod.name, host.trim()), is_static: true, ..pod })
    };
    pods(Path::new(MANIFESTS))?.into_iter().map(named).collect()
}

/// When this process was forked, in nanoseconds since boot (proc_pid_stat(5), `starttime`).
fn forked() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat").context("read this process's stat")?;
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let ticks: u64 = ticks.context("no start time")?.parse()?;
    let in_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
    Ok(ticks * (1_000_000_000 / u64::try_from(in_second)?))
}

struct Work {
    kubelet: Kubelet,
    /// The number of the next sandbox of each pod.
    attempts: BTreeMap<String, u32>,
    done: Vec<Done>,
}

/// A pod that runs.
struct Done {
    pod: Pod,
    tries: Vec<Try>,
    /// The start of its first container.
    started_first: Started,
    log: PathBuf,
}

#[derive(Clone, Copy)]
struct Started {
    pid: i32,
    step: Step,
}

/// A pod that does not run yet.
struct Waiting {
    pod: Pod,
    due: Instant,
    gap: Duration,
    tries: Vec<Try>,
}

impl Work {
    /// Starts the pods one at a time. A pod that is due for another try comes before a pod that was not tried
    /// yet.
    fn start_all(&mut self, pods: Vec<Pod>) -> Result<()> {
        let now = Instant::now();
        let new = |pod| Waiting { pod, due: now, gap: FIRST_GAP, tries: Vec::new() };
        let mut waiting: Vec<Waiting> = pods.into_iter().map(new).collect();
        while !waiting.is_empty() {
            let now = Instant::now();
            let due = waiting.iter().enumerate().filter(|(_, it)| it.due <= now);
            let Some((next, _)) = due.min_by_key(|(_, it)| (it.tries.is_empty(), it.due)) else {
                let first = waiting.iter().map(|it| it.due).min().unwrap_or(now);
                thread::sleep(first.saturating_duration_since(now));
                continue;
            };
            let mut one = waiting.remove(next);
            if let Some(started_first) = self.start(&one.pod, &mut one.tries)? {
                let Waiting { pod, tries, .. } = one;
                let log = self.log(&pod);
                self.done.push(Done { pod, tries, started_first, log });
            } else {
                one.due = Instant::now() + one.gap;
                one.gap *= 2;
                waiting.push(one);
            }
        }
        Ok(())
    }

    /// Tries to start a pod. None: it must be tried again.
    fn start(&mut self, pod: &Pod, tries: &mut Vec<Try>) -> Result<Option<Started>> {
        let attempt = *self.attempts.entry(pod.uid.clone()).and_modify(|it| *it += 1).or_default();
        self.kubelet.prepare(pod)?;
        // The directories of the node that the pod needs and that do not exist yet.
        for mount in pod.containers.iter().flat_map(|container| &container.mounts) {
            let path = &mount.host_path;
            fs::create_dir_all(path).with_context(|| format!("make {path}"))?;
        }
        let kubelet = &mut self.kubelet;
        let (outcome, step) = timed(|| Ok(kubelet.run_sandbox(pod, attempt)))?;
        let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
        tries.push(Try { step, error });
        let Ok(sandbox) = outcome else { return Ok(None) };
        let mut started_first = Vec::new();
        for container in &pod.containers {
            let run = || self.kubelet.run_container(pod, &sandbox, container, attempt);
            let (started, step) = timed(run)?;
            started_first.push(Started { pid: started.pid, step });
        }
        Ok(Some(*started_first.first().context("a pod without a container")?))
    }

    /// Returns the log of its first container.
    fn log(&self, pod: &Pod) -> PathBuf {
        let attempt = self.attempts.get(&pod.uid).copied().unwrap_or_default();
        let container = pod.containers.first().map_or("", |container| &container.name);
        Kubelet::log_directory(pod).join(container).join(format!("{attempt}.log"))
    }
}

impl Done {
    fn report(self, trace: &[Record]) -> Result<PodReport> {
        let Self { pod: Pod { namespace, name, is_static, .. }, tries, started_first, log } = self;
        // The program of a container is the first that its first process executes.
        let its =
            |record: &&Record| record.task == started_first.pid && matches!(record.event, Event::Exec { .. });
        let executed = trace.iter().find(its).with_context(|| format!("{name} executed nothing"))?.at;
        Ok(PodReport { namespace, name, is_static, tries, started: started_first.step, executed, log })
    }
}
