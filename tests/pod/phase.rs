//! Where the time of pods' starts went, as `sandprobe` tells it, held against the kernel's own trace of the same run.

mod told;
mod traced;

use std::{
    collections::BTreeMap,
    error, fmt,
    io::{Write as _, stderr},
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tests::{
    containerd::Options,
    ftrace::{self, Trace},
    keyed::{self, Faults, Times},
    kubelet::{Container, Kubelet, Pod, PodStart},
    machine,
    node::Node,
    skipped,
    stream::{Stream, Told},
};

use crate::LIMIT;
use told::{Phase, Start, number};
use traced::Traced;

/// How far the agent's time of anything may be from the trace's.
const APART: Duration = Duration::from_millis(5);
/// Under emulation one thread plays both processors in turn, a tenth of a second each (QEMU's `thread=single`), and may
/// turn to the other between the two: then of so many times one may be further away, but by no more than this.
const STOPPED: usize = 10;
const STOPPED_FOR: Duration = Duration::from_millis(500);
/// How far the phases' sum may be from the whole.
const SUM: Duration = Duration::from_millis(1);
/// Which of two phases is the longer is left open where they differ by less.
const ALIKE: Duration = Duration::from_millis(10);

/// How many at a time.
const CONCURRENCY: usize = 5;

const SLOW_PLUGIN: &str = "slow-plugin";
const FAILING: &str = "failing";
const THROTTLED: &str = "throttled";
const FAILURES: u64 = 2;

/// Longer than anything else of a start may take.
fn plugin_sleeps() -> Duration {
    Duration::from_secs(if machine::is_emulated() { 30 } else { 2 })
}

/// In thousandths of a CPU: for what runc needs of it to take longer than anything else.
fn little_cpu() -> i64 {
    if machine::is_emulated() { 50 } else { 10 }
}

#[test]
fn phases_are_those_of_the_kernels_own_trace() -> Result<()> {
    let count = if machine::is_emulated() { 20 } else { 100 };
    let pods = pods(count);
    skipped::retry(|_| {
        not_by_chance(|| {
            let slow = Faults { add_takes_ms: plugin_sleeps().as_millis().try_into()?, ..Faults::default() };
            // Under emulation each takes as long as the slow one: all else does too.
            let failing_takes = if machine::is_emulated() { slow.add_takes_ms } else { 0 };
            let failing = Faults {
                adds_fail: Times::First(FAILURES),
                add_takes_ms: failing_takes,
                ..Faults::default()
            };
            let faults = [(SLOW_PLUGIN, slow), (FAILING, failing)];
            let pod_faults = faults.map(|(name, faults)| (name.to_owned(), faults)).into();
            let run = Run::of(&Options { keyed: true, pod_faults, ..Options::default() }, &pods)?;
            run.check(&["loopback", keyed::TYPE])?;
            run.check_slow(SLOW_PLUGIN, |start| {
                let slowest = start.slowest()?;
                ensure!(
                    slowest.name == format!("cni {} eth0", keyed::TYPE) && slowest.took() >= plugin_sleeps()
                );
                Ok(())
            })?;
            run.check_slow(FAILING, |start| {
                let slowest = start.slowest()?;
                ensure!(slowest.name == "retry" && slowest.json["failed"] == FAILURES);
                ensure!(slowest.json["sandboxes"] == FAILURES);
                Ok(())
            })?;
            // All that runs in the pod is held back.
            run.check_slow(THROTTLED, |start| {
                let slowest = start.slowest()?;
                ensure!(["pause", "cgroup main"].contains(&slowest.name.as_str()));
                let throttled = throttled(slowest)?;
                ensure!(throttled >= slowest.took() / 2, "it was held back for {throttled:?} only");
                Ok(())
            })?;
            // A container alone, and only since the runtime has set its limit, shortly before its program runs: a quick
            // machine may be through before the kernel counts.
            let held_back = |name: &String| {
                run.check_slow(name, |start| {
                    let phase = start.phases.iter().find(|phase| phase.name == "cgroup main");
                    let throttled = throttled(phase.context("its phase")?)?;
                    ensure!(throttled > Duration::ZERO, "it was not held back");
                    Ok(())
                })
            };
            let mut limited = limited().map(|name| held_back(&name)).collect::<Vec<_>>();
            if limited.iter().any(Result::is_ok) { Ok(()) } else { limited.pop().context("a limited pod")? }
        })
    })
}

/// The plugins that a node would have: a chain, and one that calls another.
#[test]
fn phases_of_a_chain_of_plugins_are_those_of_the_trace() -> Result<()> {
    let count = if machine::is_emulated() { 4 } else { 20 };
    let pods: Vec<_> = (0..count).map(plain).collect();
    skipped::retry(|_| {
        not_by_chance(|| {
            Run::of(&Options::default(), &pods)?.check(&["loopback", "bridge", "host-local", "portmap"])
        })
    })
}

/// How long the kernel held back what ran in the pod.
fn throttled(phase: &Phase) -> Result<Duration> {
    let cpu = &phase.json["cpu"];
    ensure!(number(&cpu["throttled_periods"])? > 0, "in no period");
    Ok(Duration::from_nanos(number(&cpu["throttled_ns"])?))
}

/// One time alone of a run is too far from the trace's.
#[derive(Debug)]
struct OneOff(Duration);

impl fmt::Display for OneOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one time alone is too far from the trace's, {:?}", self.0)
    }
}

impl error::Error for OneOff {}

/// What is preempted between the trace's record and the agent's has two times. That is chance where a second run does not
/// show it.
fn not_by_chance(work: impl Fn() -> Result<()>) -> Result<()> {
    let Err(error) = work() else { return Ok(()) };
    if !error.is::<OneOff>() {
        return Err(error);
    }
    writeln!(stderr(), "{error}: once more")?;
    work()
}

/// The pods of which one container has little CPU.
fn limited() -> impl Iterator<Item = String> {
    let count = if machine::is_emulated() { 1 } else { 8 };
    (0..count).map(|number| format!("limited-{number}"))
}

/// So many, the special ones among them.
fn pods(count: usize) -> Vec<Pod> {
    let mut pods: Vec<_> = (0..count).map(plain).collect();
    let little = Some(little_cpu());
    let main = service("main");
    let with_little = || Container { cpu_limit: little, ..main.clone() };
    let specials = [
        (SLOW_PLUGIN.to_owned(), vec![main.clone()]),
        (FAILING.to_owned(), vec![main.clone()]),
        (THROTTLED.to_owned(), vec![with_little()]),
    ];
    let limited = limited().map(|name| (name, vec![with_little(), service("side")]));
    // In different fives.
    for (place, (name, containers)) in specials.into_iter().chain(limited).enumerate() {
        if let Some(pod) = pods.get_mut(place * CONCURRENCY + 1) {
            *pod = Pod { name, containers, init_containers: Vec::new(), ..pod.clone() };
        }
    }
    pods
}

/// One container; of every fourth init containers before it; of every fifth another beside it, where that costs little.
fn plain(index: usize) -> Pod {
    let mut pod = Pod::new(&format!("plain-{index}"), &format!("9c1cb95b-0000-4000-9000-{index:012}"));
    if index.is_multiple_of(4) {
        pod = pod.with_init(Container::shell("first", "sleep 0.3"));
        if !machine::is_emulated() {
            pod = pod.with_init(Container::shell("second", "true"));
        }
    }
    pod = pod.with(service("main"));
    if index.is_multiple_of(5) && !machine::is_emulated() { pod.with(service("side")) } else { pod }
}

fn service(name: &str) -> Container {
    Container::shell(name, "sleep 600")
}

/// What was done, what was told of it, and what the kernel's trace says.
struct Run {
    starts: Vec<PodStart>,
    told: Told,
    traced: Traced,
}

impl Run {
    fn of(options: &Options, pods: &[Pod]) -> Result<Self> {
        let node = Node::start_with(options)?;
        let mut stream = Stream::start(&["watch"])?;
        let trace = Trace::start(ftrace::LIVES)?;
        let starts = start_all(&node.kubelet()?, pods);
        let told = starts.and_then(|starts| {
            for pod in pods {
                let is_its = |event: &serde_json::Value| {
                    event["event"] == "pod.started" && event["pod"]["uid"] == pod.uid
                };
                stream.until(&format!("the start of {}", pod.name), is_its)?;
            }
            Ok(starts)
        });
        let records = trace.end()?;
        let (stream, _) = stream.end()?;
        node.stop()?;
        let lost = stream.lost()?;
        ensure!(lost == 0, "{lost} runs were skipped, so that phases may be longer than they were");
        Ok(Self { starts: told?, told: stream, traced: Traced::new(records) })
    }

    fn start(&self, pod: &Pod) -> Result<Start> {
        let mut events = self.told.named("pod.started").filter(|event| event["pod"]["uid"] == pod.uid);
        let start = Start::of(events.next().context("it was not told of")?)?;
        ensure!(events.next().is_none(), "it was told of twice");
        Ok(start)
    }

    fn check_slow(&self, name: &str, check: impl Fn(&Start) -> Result<()>) -> Result<()> {
        let pod = self.starts.iter().find(|start| start.pod.name == name).context("such a pod")?;
        let start = self.start(&pod.pod)?;
        check(&start).with_context(|| format!("of {name}, told as {start:#?}"))
    }

    /// Every pod's phases are the trace's. Says how far apart the two were at most.
    fn check(&self, plugins: &[&str]) -> Result<()> {
        self.traced.check_calls(&self.told, plugins)?;
        let mut apart = Vec::new();
        let mut slowest: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &self.starts {
            let start = self.start(&pod.pod)?;
            let its = self.check_one(pod, &start);
            apart.extend(its.with_context(|| format!("of {}: {start:#?}", pod.pod.name))?);
            *slowest.entry(start.slowest()?.name.clone()).or_default() += 1;
        }
        apart.sort_unstable();
        let farthest = apart.last().copied().context("boundaries")?;
        let median = apart[apart.len() / 2];
        let far = apart.iter().filter(|apart| **apart > APART).count();
        writeln!(
            stderr(),
            "{} starts, {} boundaries, from the trace {farthest:?} at most, {median:?} in the middle, {far} of them \
             more than {APART:?}; slowest phases: {slowest:?}",
            self.starts.len(),
            apart.len(),
        )?;
        let (allowed, limit) =
            if machine::is_emulated() { (apart.len() / STOPPED, STOPPED_FOR) } else { (0, APART) };
        if far == 1 && allowed == 0 {
            return Err(OneOff(farthest).into());
        }
        ensure!(
            far <= allowed && farthest <= limit,
            "{far} are too far from the trace, {farthest:?} at most"
        );
        Ok(())
    }

    /// Of each boundary how far it is from the trace's.
    fn check_one(&self, pod: &PodStart, start: &Start) -> Result<Vec<Duration>> {
        start.check_sum(SUM)?;
        let ways = self.traced.phases(pod, &self.told)?;
        let found = ways.iter().filter_map(|way| Some((way, start.apart(way).ok()?)));
        let best = found.min_by_key(|(_, apart)| apart.iter().max().copied());
        let Some((traced, apart)) = best else {
            // Why not is told of the first.
            let way = ways.first().context("the trace has phases")?;
            return start.apart(way).with_context(|| format!("in the trace: {way:#?}"));
        };
        let traced = traced.iter().rev().max_by_key(|phase| phase.took()).context("a phase")?;
        let slowest = start.slowest()?;
        ensure!(
            traced.name == slowest.name || traced.took().abs_diff(slowest.took()) <= ALIKE,
            "in the trace {} is the slowest, not {}",
            traced.name,
            slowest.name
        );
        Ok(apart)
    }
}

/// Starts them, so many at a time, and ends each as soon as it runs.
fn start_all(kubelet: &Kubelet, pods: &[Pod]) -> Result<Vec<PodStart>> {
    let next = Mutex::new(pods.iter());
    let (sender, starts) = mpsc::channel();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..CONCURRENCY)
            .map(|_| -> Result<_> {
                let mut kubelet = kubelet.another()?;
                let (next, sender) = (&next, sender.clone());
                Ok(scope.spawn(move || -> Result<()> {
                    loop {
                        let Some(pod) = next.lock().expect("no worker panics with it").next() else {
                            return Ok(());
                        };
                        let start = kubelet.start(pod, LIMIT)?;
                        kubelet.end(pod)?;
                        sender.send(start)?;
                    }
                }))
            })
            .collect::<Result<_>>()?;
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    drop(sender);
    Ok(starts.into_iter().collect())
}
