//! Compares the phases of pod starts as `sandprobe` reports them with the kernel's own trace of the same run.

mod reported;
pub(crate) mod traced;

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
    stream::{Received, Stream},
};

use crate::{LIMIT, events::name_containers};
use reported::{Phase, Start, number};
use traced::Traced;

/// How far a time of the agent may be from the trace's time.
const APART: Duration = Duration::from_millis(5);
/// The emulator's one thread runs both CPUs in turn, a tenth of a second each (QEMU's `thread=single`). It
/// may switch between the trace's record and the agent's. One in this many times may be further away, but by
/// no more than `STOPPED_FOR`.
const STOPPED: usize = 10;
const STOPPED_FOR: Duration = Duration::from_millis(500);
/// How far the sum of the phases may be from the whole start.
const SUM: Duration = Duration::from_millis(1);
/// If two phases differ by less, either may be the longest.
const ALIKE: Duration = Duration::from_millis(10);

/// The number of pods that start at a time.
const CONCURRENCY: usize = 5;

const SLOW_PLUGIN: &str = "slow-plugin";
const FAILING: &str = "failing";
const THROTTLED: &str = "throttled";
const FAILURES: u64 = 2;

/// Longer than any other phase may take.
fn plugin_sleeps() -> Duration {
    Duration::from_secs(if machine::is_emulated() { 30 } else { 2 })
}

/// Returns the CPU limit in thousandths of a CPU. With so little, runc's work in the container takes longer
/// than any other phase.
fn little_cpu() -> i64 {
    if machine::is_emulated() { 50 } else { 10 }
}

#[test]
fn phases_are_those_of_the_kernels_own_trace() -> Result<()> {
    let count = if machine::is_emulated() { 20 } else { 100 };
    let pods = pods(count);
    skipped::retry(|_| {
        repeat_single_deviation(|| {
            let slow = Faults { add_takes_ms: plugin_sleeps().as_millis().try_into()?, ..Faults::default() };
            // Under emulation everything is slow, so each failing ADD takes as long as the slow plugin.
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
            // The limit throttles everything that runs in the pod.
            run.check_slow(THROTTLED, |start| {
                let slowest = start.slowest()?;
                ensure!(["pause", "cgroup main"].contains(&slowest.name.as_str()));
                let throttled = throttled(slowest)?;
                ensure!(throttled >= slowest.took() / 2, "it was throttled for {throttled:?} only");
                Ok(())
            })?;
            // Here one container is limited, and only from the moment when the runtime sets its limit,
            // shortly before the program runs. A quick machine may be done before the kernel counts a period.
            let check_throttled = |name: &String| {
                run.check_slow(name, |start| {
                    let phase = start.phases.iter().find(|phase| phase.name == "cgroup main");
                    let throttled = throttled(phase.context("its phase")?)?;
                    ensure!(throttled > Duration::ZERO, "it was not throttled");
                    Ok(())
                })
            };
            let mut limited = limited().map(|name| check_throttled(&name)).collect::<Vec<_>>();
            if limited.iter().any(Result::is_ok) { Ok(()) } else { limited.pop().context("a limited pod")? }
        })
    })
}

/// The plugins of an ordinary node: a chain, and one that calls another.
#[test]
fn phases_of_a_chain_of_plugins_are_those_of_the_trace() -> Result<()> {
    let count = if machine::is_emulated() { 4 } else { 20 };
    let pods: Vec<_> = (0..count).map(plain).collect();
    skipped::retry(|_| {
        repeat_single_deviation(|| {
            Run::of(&Options::default(), &pods)?.check(&["loopback", "bridge", "host-local", "portmap"])
        })
    })
}

/// How long the kernel throttled the pod's processes.
fn throttled(phase: &Phase) -> Result<Duration> {
    let cpu = &phase.json["cpu"];
    ensure!(number(&cpu["throttled_periods"])? > 0, "throttled in no period");
    Ok(Duration::from_nanos(number(&cpu["throttled_ns"])?))
}

/// A single time of a run is too far from the trace's.
#[derive(Debug)]
struct OneOff(Duration);

impl fmt::Display for OneOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a single time is too far from the trace's: {:?}", self.0)
    }
}

impl error::Error for OneOff {}

/// Repeats the work after a single deviation. A process that is preempted between the trace's record and the
/// agent's gets two times. A second run shows whether that was chance.
fn repeat_single_deviation(work: impl Fn() -> Result<()>) -> Result<()> {
    let Err(error) = work() else { return Ok(()) };
    if !error.is::<OneOff>() {
        return Err(error);
    }
    writeln!(stderr(), "{error}: repeating")?;
    work()
}

/// Returns the pods with one container that has little CPU.
fn limited() -> impl Iterator<Item = String> {
    let count = if machine::is_emulated() { 1 } else { 8 };
    (0..count).map(|number| format!("limited-{number}"))
}

/// Makes `count` pods, the special ones among them.
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
    // Each special pod starts with other plain ones.
    for (place, (name, containers)) in specials.into_iter().chain(limited).enumerate() {
        if let Some(pod) = pods.get_mut(place * CONCURRENCY + 1) {
            *pod = Pod { name, containers, init_containers: Vec::new(), ..pod.clone() };
        }
    }
    pods
}

/// Returns a pod with one container. Every fourth has init containers too. Where that is cheap, every fifth
/// has another container.
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

/// The pods' starts, the agent's events of them, and the kernel's trace.
struct Run {
    starts: Vec<PodStart>,
    received: Received,
    traced: Traced,
}

impl Run {
    fn of(options: &Options, pods: &[Pod]) -> Result<Self> {
        let node = Node::start_with(options)?;
        let mut stream = Stream::start(&["watch"])?;
        let trace = Trace::start(ftrace::LIVES)?;
        let starts = start_all(&node.kubelet()?, pods);
        let received = starts.and_then(|starts| {
            for pod in pods {
                let is_its = |event: &serde_json::Value| {
                    event["event"] == "pod.started" && event["pod"]["uid"] == pod.uid
                };
                stream.until(&format!("the start of {}", pod.name), is_its)?;
            }
            Ok(starts)
        });
        let records = trace.end()?;
        let (mut stream, _) = stream.end()?;
        node.stop()?;
        let lost = stream.lost()?;
        ensure!(lost == 0, "{lost} runs were skipped, so phases may look longer than they were");
        let starts = received?;
        let parts = starts.iter().flat_map(|start| &start.parts);
        let names = parts.map(|part| (part.started.id.as_str(), part.name.as_str())).collect();
        name_containers(&mut stream.events, &names);
        Ok(Self { starts, received: stream, traced: Traced::new(records) })
    }

    fn start(&self, pod: &Pod) -> Result<Start> {
        let mut events = self.received.named("pod.started").filter(|event| event["pod"]["uid"] == pod.uid);
        let start = Start::of(events.next().context("the start is not reported")?)?;
        ensure!(events.next().is_none(), "the start is reported twice");
        Ok(start)
    }

    fn check_slow(&self, name: &str, check: impl Fn(&Start) -> Result<()>) -> Result<()> {
        let pod = self.starts.iter().find(|start| start.pod.name == name).context("no such pod")?;
        let start = self.start(&pod.pod)?;
        check(&start).with_context(|| format!("pod {name}, reported as {start:#?}"))
    }

    /// Checks every pod's phases against the trace. Prints the greatest difference.
    fn check(&self, plugins: &[&str]) -> Result<()> {
        self.traced.check_calls(&self.received, plugins)?;
        let mut apart = Vec::new();
        let mut slowest: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &self.starts {
            let start = self.start(&pod.pod)?;
            let its = self.check_one(pod, &start);
            apart.extend(its.with_context(|| format!("pod {}: {start:#?}", pod.pod.name))?);
            *slowest.entry(start.slowest()?.name.clone()).or_default() += 1;
        }
        apart.sort_unstable();
        let farthest = apart.last().copied().context("boundaries")?;
        let median = apart[apart.len() / 2];
        let far = apart.iter().filter(|apart| **apart > APART).count();
        writeln!(
            stderr(),
            "{} starts, {} boundaries, {farthest:?} from the trace at most, {median:?} in the median, {far} of them \
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

    /// Returns the distance of each boundary from the trace's.
    fn check_one(&self, pod: &PodStart, start: &Start) -> Result<Vec<Duration>> {
        start.check_sum(SUM)?;
        let ways = self.traced.phases(pod, &self.received)?;
        let found = ways.iter().filter_map(|way| Some((way, start.apart(way).ok()?)));
        let best = found.min_by_key(|(_, apart)| apart.iter().max().copied());
        let Some((traced, apart)) = best else {
            // The error is the one of the first way.
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

/// Starts the pods, `CONCURRENCY` at a time, and ends each as soon as it runs.
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
