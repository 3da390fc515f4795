//! The phases of a start by the kernel's own trace, calculated by the rules of `docs/phases.md` alone.
//!
//! All times are the trace's. The trace has neither arguments nor environments, so it cannot show which
//! plugin call and which namespace belong to which pod. The agent's events answer that, by process and by the
//! nearest time. The test checks that there are as many of one as of the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    ftrace::{Event, Record},
    kubelet::PodStart,
    machine,
    stream::Received,
};

use super::reported::{Phase, number};

/// The id of the v2 hierarchy. The agent uses it, and runc makes cgroups in it even where v1 has the
/// controllers.
const UNIFIED: u32 = 0;

/// Two events on different CPUs that are nearer than this may have another order in the agent's times.
fn tie() -> u64 {
    if machine::is_emulated() { 50_000_000 } else { 2_000_000 }
}

/// How long before its runtime the shim of a container runs at most.
const SHIM: u64 = 10_000_000_000;

pub(crate) struct Traced {
    cgroups: Vec<(u64, String)>,
    /// The processes that were moved into each cgroup, by its path.
    entered: BTreeMap<String, Vec<i32>>,
    created: BTreeMap<i32, Created>,
    execs: BTreeMap<i32, Vec<(u64, String)>>,
    exits: BTreeMap<i32, u64>,
    namespaces: Vec<u64>,
}

/// The process that created a task.
#[derive(Clone, Copy)]
struct Created {
    by: i32,
    is_thread: bool,
}

/// A plugin that was called with ADD.
#[derive(Clone, Debug)]
struct Add {
    name: String,
    begin: u64,
    end: u64,
}

impl Traced {
    pub(crate) fn new(records: Vec<Record>) -> Self {
        let mut traced = Self {
            cgroups: Vec::new(),
            entered: BTreeMap::new(),
            created: BTreeMap::new(),
            execs: BTreeMap::new(),
            exits: BTreeMap::new(),
            namespaces: Vec::new(),
        };
        for Record { at, task, event } in records {
            match event {
                Event::CgroupMade { hierarchy: UNIFIED, path } => traced.cgroups.push((at, path)),
                Event::CgroupEntered { hierarchy: UNIFIED, path, task } => {
                    traced.entered.entry(path).or_default().push(task);
                }
                Event::CgroupMade { .. } | Event::CgroupEntered { .. } => {}
                Event::Begun { task: child, is_thread } => {
                    traced.created.insert(child, Created { by: task, is_thread });
                }
                Event::Exec { file } => traced.execs.entry(task).or_default().push((at, file)),
                Event::Exit => {
                    let process = traced.process(task);
                    traced.exits.insert(process, at);
                }
                Event::NetnsMade => traced.namespaces.push(at),
            }
        }
        traced
    }

    /// Checks that every run of these plugins is reported, and that no other call is.
    pub(crate) fn check_calls(&self, received: &Received, plugins: &[&str]) -> Result<()> {
        let name = |file: &str| {
            Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
        };
        let is_plugin = |(_, file): &(u64, String)| plugins.contains(&name(file).as_str());
        let ran: BTreeSet<i32> =
            self.execs.iter().filter(|(_, execs)| execs.iter().any(is_plugin)).map(|(pid, _)| *pid).collect();
        let calls: BTreeSet<i32> = received.named("cni.started").map(pid).collect::<Result<_>>()?;
        let missing: Vec<_> = ran.symmetric_difference(&calls).collect();
        ensure!(missing.is_empty(), "reported and not in the trace, or the reverse: {missing:?}");
        Ok(())
    }

    /// Returns the paths of the cgroups that were made.
    pub(crate) fn cgroups(&self) -> impl Iterator<Item = &str> {
        self.cgroups.iter().map(|(_, path)| path.as_str())
    }

    /// Returns the phases of a pod's start. There are several ways where the order of two events is too close
    /// to decide.
    pub(super) fn phases(&self, start: &PodStart, received: &Received) -> Result<Vec<Vec<Phase>>> {
        let adds = self.adds(&start.sandbox.id, received)?;
        let mut ways = Vec::new();
        for [begins, ends] in [[false, false], [true, false], [false, true], [true, true]] {
            let Some(adds) = exchanged(&adds, begins, ends) else { continue };
            ways.push(self.cut(start, received, adds)?);
        }
        Ok(ways)
    }

    fn cut(&self, start: &PodStart, received: &Received, adds: Vec<Add>) -> Result<Vec<Phase>> {
        let mut cut = Cut { at: self.cgroup(&start.pod.uid)?, phases: Vec::new() };
        let first_events = self.first_events(start, received)?;
        let (first, last) = first_events.first().zip(first_events.last()).context("a sandbox")?;
        cut.upto(*first, "prepare".to_owned());
        cut.upto(*last, "retry".to_owned());
        let mut before = "netns";
        for add in one_at_a_time(adds) {
            cut.upto(add.begin, before.to_owned());
            before = "between";
            cut.upto(add.end, format!("cni {}", add.name));
        }
        let (_, pause) = self.program(&start.sandbox.id, "/bin/pause")?;
        let first = start.parts.first().map(|part| self.runtime(&part.started.id, received)).transpose()?;
        cut.upto(first.map_or(pause, |first| pause.min(first)), "pause".to_owned());
        for part in &start.parts {
            let of = |phase: &str| format!("{phase} {}", part.name);
            let (process, runs) = self.program(&part.started.id, "/bin/sh")?;
            cut.upto(self.runtime(&part.started.id, received)?, of("image"));
            cut.upto(self.cgroup(&part.started.id)?, of("runtime"));
            cut.upto(runs, of("cgroup"));
            if part.exit_known.is_some() {
                let end = self.exits.get(&process).context("the end of an init container")?;
                cut.upto(*end, of("init"));
            }
        }
        Ok(cut.phases)
    }

    /// When the cgroup was made whose name contains this id.
    fn cgroup(&self, id: &str) -> Result<u64> {
        let is_its = |path: &str| path.rsplit('/').next().is_some_and(|name| has(name, id));
        let found = self.cgroups.iter().find(|(_, path)| is_its(path));
        found.map(|(at, _)| *at).with_context(|| format!("no cgroup of {id} in the trace"))
    }

    /// Returns the process that runs a container's own program, and when it began: the first in its cgroup to
    /// execute that file.
    fn program(&self, id: &str, file: &str) -> Result<(i32, u64)> {
        let entered = self.entered_of(id)?;
        let is_in = |pid: &i32| self.ancestors(*pid).any(|ancestor| entered.contains(&ancestor));
        let runs = self.execs.iter().flat_map(|(pid, execs)| {
            execs.iter().filter(|(_, its)| its == file).map(move |(at, _)| (*at, *pid))
        });
        let mut runs: Vec<_> = runs.collect();
        runs.sort_unstable();
        let first = runs.into_iter().find(|(_, pid)| is_in(pid));
        first.map(|(at, pid)| (pid, at)).with_context(|| format!("{file} of {id} is not in the trace"))
    }

    /// When the runtime was executed that made the first process in a container's cgroup. If containerd
    /// executed a shim for this container before that, the shim's time counts. The trace alone cannot tell
    /// one shim from another.
    fn runtime(&self, id: &str, received: &Received) -> Result<u64> {
        let entered = self.entered_of(id)?;
        let first = entered.first().context("no process entered the cgroup")?;
        let runs = self.ancestors(*first).filter_map(|ancestor| self.execs.get(&ancestor)).flatten();
        let mut runs = runs.filter(|(_, file)| file.ends_with("/runc"));
        let runtime = runs.next().map(|(at, _)| *at);
        let runtime = runtime.with_context(|| format!("no runtime of {id} in the trace"))?;
        let mut at = runtime;
        for event in received.named("process.exec").filter(|event| event["container"]["id"] == *id) {
            let execs = self.execs.get(&pid(event)?).into_iter().flatten();
            let shims = execs.filter(|(_, file)| file.contains("/containerd-shim")).map(|(at, _)| *at);
            at = shims.chain([at]).min().unwrap_or(at);
        }
        ensure!(runtime - at < SHIM, "a shim of {id} ran {} ns before its runtime", runtime - at);
        Ok(at)
    }

    fn entered_of(&self, id: &str) -> Result<&[i32]> {
        let its =
            self.entered.iter().find(|(path, _)| path.rsplit('/').next().is_some_and(|name| has(name, id)));
        its.map(|(_, tasks)| tasks.as_slice())
            .with_context(|| format!("no process entered the cgroup of {id}"))
    }

    /// Returns a process and its ancestors, as far back as the trace goes.
    fn ancestors(&self, pid: i32) -> impl Iterator<Item = i32> {
        let parent = |pid: &i32| self.created.get(pid).map(|created| self.process(created.by));
        // A reused pid must not lead to an endless loop.
        std::iter::successors(Some(pid), parent).take(16)
    }

    fn process(&self, mut task: i32) -> i32 {
        for _ in 0..16 {
            match self.created.get(&task) {
                Some(created) if created.is_thread => task = created.by,
                _ => break,
            }
        }
        task
    }

    /// Returns the first event of each of the pod's sandboxes: its namespace. For a failed sandbox whose
    /// namespace is unknown it is the first plugin.
    fn first_events(&self, start: &PodStart, received: &Received) -> Result<Vec<u64>> {
        let mut first_events = Vec::new();
        for sandbox in sandboxes(start, received) {
            let is_its = |event: &&Value| event["sandbox"]["id"] == *sandbox;
            let first_event = match received.named("netns.created").find(is_its) {
                Some(event) => {
                    let at = number(&event["boot_ns"])?;
                    let nearest = self.namespaces.iter().min_by_key(|traced| traced.abs_diff(at));
                    *nearest.context("no namespace in the trace")?
                }
                None => {
                    ensure!(sandbox != start.sandbox.id, "the pod's namespace is not reported");
                    self.adds(sandbox, received)?.first().context("a plugin")?.begin
                }
            };
            first_events.push(first_event);
        }
        first_events.sort_unstable();
        let steps: Vec<_> = start.failed.iter().chain([&start.run]).collect();
        ensure!(
            first_events.len() == steps.len(),
            "{} sandboxes are reported, not {}",
            first_events.len(),
            steps.len()
        );
        for (at, step) in first_events.iter().zip(steps) {
            // The trace counts in microseconds.
            let asked = step.asked.saturating_sub(1_000);
            ensure!(
                (asked..=step.done).contains(at),
                "a sandbox's first event was at {at}, not within {step:?}"
            );
        }
        Ok(first_events)
    }

    /// Returns the plugins that the runtime called with ADD for a sandbox.
    fn adds(&self, sandbox: &str, received: &Received) -> Result<Vec<Add>> {
        let is_its = |event: &&Value| {
            event["sandbox"]["id"] == *sandbox
                && event["cni"]["command"] == "ADD"
                && event["cni"]["called_by"].is_null()
        };
        let mut adds = Vec::new();
        for event in received.named("cni.started").filter(is_its) {
            let (pid, at) = (pid(event)?, number(&event["boot_ns"])?);
            let (plugin, ifname) = (&event["cni"]["plugin"], &event["cni"]["ifname"]);
            let (plugin, ifname) = plugin.as_str().zip(ifname.as_str()).context("plugin and interface")?;
            let execs = self.execs.get(&pid).into_iter().flatten();
            let exec = execs.filter(|(_, file)| Path::new(file).ends_with(plugin)).map(|(at, _)| *at);
            let begin = exec.min_by_key(|exec| exec.abs_diff(at)).context("a plugin's exec in the trace")?;
            let end = *self.exits.get(&pid).context("a plugin's end in the trace")?;
            adds.push(Add { name: format!("{plugin} {ifname}"), begin, end });
        }
        adds.sort_by_key(|add| add.begin);
        Ok(adds)
    }
}

/// Makes phases one after the other. Empty ones are left out, except plugins.
struct Cut {
    at: u64,
    phases: Vec<Phase>,
}

impl Cut {
    fn upto(&mut self, to: u64, name: String) {
        let to = to.max(self.at);
        if to > self.at || name.starts_with("cni ") {
            self.phases.push(Phase { name, begin: self.at, end: to, json: Value::Null });
            self.at = to;
        }
    }
}

/// Gives the time of plugins that run in parallel to the one that ends last. The others keep the time before
/// it.
fn one_at_a_time(mut adds: Vec<Add>) -> Vec<Add> {
    for place in 0..adds.len() {
        let latest = adds.iter().take(place).map(|add| add.end).max().unwrap_or(0);
        let begin = adds[place].begin;
        if adds[place].end <= latest {
            adds[place].end = begin;
        } else {
            for before in adds.iter_mut().take(place) {
                before.end = before.end.min(begin);
            }
        }
    }
    adds
}

/// Exchanges the beginnings, the ends or both of the first two plugins, if these times are too close to
/// decide their order.
fn exchanged(adds: &[Add], begins: bool, ends: bool) -> Option<Vec<Add>> {
    let mut adds = adds.to_vec();
    if let [first, second, ..] = adds.as_mut_slice() {
        if begins {
            (first.begin.abs_diff(second.begin) < tie()).then_some(())?;
            std::mem::swap(&mut first.begin, &mut second.begin);
        }
        if ends {
            (first.end.abs_diff(second.end) < tie()).then_some(())?;
            std::mem::swap(&mut first.end, &mut second.end);
        }
    } else if begins || ends {
        return None;
    }
    adds.sort_by_key(|add| add.begin);
    Some(adds)
}

/// Returns all sandboxes of a pod.
fn sandboxes<'a>(start: &PodStart, received: &'a Received) -> BTreeSet<&'a str> {
    let of_pod = received.of_pod(&start.pod.uid).into_iter();
    of_pod.filter_map(|event| event["sandbox"]["id"].as_str()).collect()
}

fn pid(event: &Value) -> Result<i32> {
    let pid = event["process"]["pid"].as_i64().with_context(|| format!("no process: {event}"))?;
    Ok(pid.try_into()?)
}

/// Whether a cgroup's name contains this id. Systemd's names have underscores for dashes.
fn has(name: &str, id: &str) -> bool {
    name.contains(id) || name.contains(&id.replace('-', "_"))
}
