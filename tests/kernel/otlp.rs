//! The agent sends traces and logs to a receiver over each protocol, while the receiver and the agents come
//! and go. CNI calls are in the traces of their callers.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use tests::{
    cgroupfs::Hierarchy,
    clock,
    guard::netns::MountedNetns,
    held,
    live::Shared,
    machine,
    receiver::{Protocol, Received, Receiver},
    refusal,
    succession::{End, Place, Run},
};

use crate::{
    cni::call::{Environment, Runtime, STATUS},
    container::{Container, new_id},
};

/// The additional memory of an agent without its receiver: two queues, and the messages made from their
/// spans.
const MEMORY_KB: u64 = 16_000;

/// How long the receiver is away in the test for growth.
const AWAY: Duration = Duration::from_secs(5 * 60);

/// Starts an agent that sends to this URL.
fn run(place: &Place, protocol: Protocol, to: &str) -> Result<Run> {
    let errors = place.state().with_extension("said");
    let mut command = place.command("run")?;
    let name = match protocol {
        Protocol::Grpc => "grpc",
        Protocol::Http => "http/protobuf",
    };
    command.args(["--listen", "none", "--otlp", to, "--otlp-protocol", name, "--cri", "none"]);
    command.arg("--socket").arg(place.state().with_extension("sock"));
    command.arg("--state-dir").arg(place.state());
    let child = command.stdout(Stdio::null()).stderr(File::create(&errors)?).spawn()?;
    Ok(Run { child, errors })
}

/// Sets up a pod's network and runs its only program to the end, as the kernel sees it.
fn pod(number: usize, hierarchy: &Hierarchy, runtime: &mut Runtime) -> Result<String> {
    let netns = MountedNetns::create()?;
    let (container, id) = (Container::create(hierarchy)?, new_id()?);
    let path = netns.path().to_str().context("the path is no text")?;
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{number}");
    let add = Environment::of_add(&id).with("CNI_NETNS", path).with("CNI_ARGS", &args);
    runtime.call(&add, &[])?;
    let mut child = container.idle()?;
    child.kill()?;
    child.wait()?;
    runtime.call(&add.with("CNI_COMMAND", "DEL"), &[])?;
    netns.end()?;
    Ok(id)
}

fn text<'a>(all: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let value = all.iter().find(|it| it.key == key)?.value.as_ref()?.value.as_ref()?;
    match value {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the sandboxes whose teardown arrived as a trace.
fn torn_down(received: &Received) -> BTreeSet<String> {
    let roots = received.spans.iter().filter(|span| span.name == "sandbox teardown");
    roots.filter_map(|root| Some(text(&root.attributes, "sandprobe.sandbox.id")?.to_owned())).collect()
}

/// Waits until the teardown of each of these sandboxes has arrived.
fn arrived(receiver: &Receiver, sandboxes: &BTreeSet<String>) -> Result<()> {
    let is_there = || Ok(torn_down(&receiver.received()).is_superset(sandboxes).then_some(()));
    clock::poll("the teardowns", machine::patience(), is_there)
        .with_context(|| format!("{:?} and not {sandboxes:?}", torn_down(&receiver.received())))
}

/// Returns the log lines about traces and the receiver.
fn said(run: &Run) -> Result<Vec<String>> {
    let said = fs::read_to_string(&run.errors)?;
    let is_one = |line: &&str| line.contains("traces") && line.contains("sent to http");
    Ok(said.lines().filter(is_one).map(str::to_owned).collect())
}

/// Returns the agent's memory in kB.
fn memory(run: &Run) -> Result<u64> {
    held::kilobytes(run.child.id(), "VmRSS")
}

fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[test]
fn each_teardown_of_this_kernel_arrives_whole_and_once() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let receiver = Receiver::start(protocol, None)?;
        let place = Place::new()?;
        // The URL has a name, which the confined thread resolves.
        let mut agent = run(&place, protocol, &format!("http://localhost:{}", receiver.address().port()))?;
        agent.attached()?;
        let mut runtime = Runtime::start()?;
        let count = machine::share_of(10);
        let made = (0..count).map(|number| pod(number, &hierarchy, &mut runtime));
        let made = made.collect::<Result<BTreeSet<String>>>()?;
        arrived(&receiver, &made)?;
        let errors = agent.errors.clone();
        let status = agent.end(End::Stopped)?;
        let said = fs::read_to_string(errors)?;
        ensure!(status.success(), "{status}: {said}");
        refusal::check(&said)?;
        let received = receiver.received();
        ensure!(received.problems.is_empty(), "{:?}", received.problems);
        for spans in received.traces().values() {
            let root = spans.iter().find(|span| span.parent_span_id.is_empty()).context("a root")?;
            let pod = text(&root.attributes, "k8s.pod.name").unwrap_or_default();
            if !pod.starts_with("web-") || root.name != "sandbox teardown" {
                continue;
            }
            let calls: Vec<_> = spans.iter().filter(|span| span.name.starts_with("cni DEL ")).collect();
            ensure!(calls.len() == 1, "{calls:?}");
            ensure!(spans.iter().filter(|span| span.name == root.name).count() == 1, "told twice: {root:?}");
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
#[test]
fn while_the_receiver_is_away_there_is_one_line_and_little_memory() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    let (place, address) = (Place::new()?, free()?);
    let mut agent = run(&place, Protocol::Grpc, &format!("http://{address}"))?;
    agent.attached()?;
    let beside = Place::new()?;
    let mut other = run(&beside, Protocol::Grpc, "none")?;
    other.attached()?;
    let mut runtime = Runtime::start()?;
    let mut made = BTreeSet::new();
    let back = Instant::now() + if machine::is_soak() { AWAY } else { Duration::ZERO };
    while made.len() < machine::share_of(60) || Instant::now() < back {
        made.insert((made.len(), pod(made.len(), &hierarchy, &mut runtime)?));
    }
    // Teardowns are sent when they are over. The agent tries that, and fails.
    clock::poll("what is wrong", machine::patience(), || Ok((!said(&agent)?.is_empty()).then_some(())))?;
    let (with, without) = (memory(&agent)?, memory(&other)?);
    ensure!(with < without + MEMORY_KB, "{with} and {without} kB after {} pods", made.len());
    println!("{with} kB, and {without} kB without a receiver, after {} pods", made.len());
    let receiver = Receiver::start_at(Protocol::Grpc, None, address)?;
    // The queue has room for the teardowns of the last minutes.
    let last: BTreeSet<String> = made.iter().rev().take(60).map(|(_, id)| id.clone()).collect();
    arrived(&receiver, &last)?;
    clock::poll("that it works again", machine::patience(), || Ok((said(&agent)?.len() > 1).then_some(())))?;
    let lines = said(&agent)?;
    ensure!(lines.len() == 2, "{lines:?}");
    ensure!(lines[0].contains("start the receiver or correct the URL"), "{lines:?}");
    ensure!(lines[1].contains("again, after"), "{lines:?}");
    ensure!(receiver.received().problems.is_empty(), "{:?}", receiver.received().problems);
    let errors = agent.errors.clone();
    let status = agent.end(End::Stopped)?;
    ensure!(status.success(), "{status}");
    refusal::check(&fs::read_to_string(errors)?)
}

/// The first agent is killed when everything has arrived, because waiting spans would be lost. The next agent
/// may report the same things again.
#[test]
fn what_is_told_again_after_an_agent_was_killed_has_the_same_ids() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    let receiver = Receiver::start(Protocol::Http, None)?;
    let (place, mut made) = (Place::new()?, BTreeSet::new());
    for (round, end) in [End::Killed, End::Stopped].into_iter().enumerate() {
        let mut agent = run(&place, Protocol::Http, &format!("http://{}", receiver.address()))?;
        agent.attached()?;
        let mut runtime = Runtime::start()?;
        for number in 0..machine::share_of(5) {
            made.insert(pod(100 * round + number, &hierarchy, &mut runtime)?);
        }
        arrived(&receiver, &made)?;
        agent.end(end)?;
    }
    let received = receiver.received();
    ensure!(received.problems.is_empty(), "{:?}", received.problems);
    for id in &made {
        let roots = received.spans.iter().filter(|span| {
            span.name == "sandbox teardown" && text(&span.attributes, "sandprobe.sandbox.id") == Some(id)
        });
        let ids: BTreeSet<_> = roots.map(|span| (&span.trace_id, &span.span_id)).collect();
        ensure!(ids.len() == 1, "{id}: {ids:?}");
    }
    Ok(())
}

/// How many callers there are at a time, as many goroutines of a runtime may be.
const CALLERS: u128 = 16;

/// A call with a trace of its own, whose caller does as libcni does: the plugin gets the caller's span in its
/// environment, and so does the plugin that it calls.
struct Traced {
    number: u128,
    sandbox: String,
}

impl Traced {
    fn call(number: u128, runtime: &mut Runtime) -> Result<Self> {
        let sandbox = new_id()?;
        let trace_id = number + 1;
        let flags = match number % 4 {
            0 | 1 => "01",
            2 => "00",
            _ => "0x",
        };
        let add = Environment::of_add(&sandbox)
            .with("CNI_PATH", &runtime.folder()?)
            .with("CNI_ARGS", &format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{number}"))
            .with("TRACEPARENT", &format!("00-{trace_id:032x}-{trace_id:016x}-{flags}"));
        let mut does = vec!["run".to_owned()];
        does.extend(runtime.plugin("host-local", &add)?);
        does.extend(["exit".to_owned(), STATUS.to_string()]);
        runtime.call_to(&add, &[], &does)?;
        Ok(Self { number, sandbox })
    }

    fn is_sampled(&self) -> bool {
        self.number % 4 < 2
    }

    fn spans<'a>(&self, received: &'a Received) -> Vec<&'a Span> {
        let trace_id = (self.number + 1).to_be_bytes();
        received.spans.iter().filter(|span| span.trace_id == trace_id).collect()
    }

    fn check(&self, received: &Received) -> Result<()> {
        let spans = self.spans(received);
        let of_name = |name| spans.iter().find(|span| span.name == name);
        match (of_name("cni ADD bridge"), of_name("cni ADD host-local")) {
            (None, None) if !self.is_sampled() => ensure!(spans.is_empty(), "{spans:?}"),
            (Some(plugin), Some(ipam)) if self.is_sampled() => {
                let place = (self.number + 1).to_be_bytes();
                ensure!(spans.len() == 2, "{spans:?}");
                ensure!(
                    plugin.parent_span_id == place[8..] && ipam.parent_span_id == plugin.span_id,
                    "{spans:?}"
                );
                let within = plugin.start_time_unix_nano <= ipam.start_time_unix_nano
                    && ipam.end_time_unix_nano <= plugin.end_time_unix_nano;
                ensure!(within, "{spans:?}");
                for span in [plugin, ipam] {
                    let sandbox = text(&span.attributes, "sandprobe.sandbox.id");
                    ensure!(sandbox == Some(&self.sandbox), "{span:?}");
                }
            }
            _ => bail!("call {}: {spans:?}", self.number),
        }
        Ok(())
    }
}

#[test]
fn calls_side_by_side_are_each_below_their_own_caller() -> Result<()> {
    let receiver = Receiver::start(Protocol::Grpc, None)?;
    let place = Place::new()?;
    let mut agent = run(&place, Protocol::Grpc, &format!("http://{}", receiver.address()))?;
    agent.attached()?;
    let each = u128::try_from(machine::share_of(if machine::is_soak() { 625 } else { 20 }))?;
    let calls = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let mut runtime = Runtime::start()?;
                    let numbers = caller * each..(caller + 1) * each;
                    numbers.map(|number| Traced::call(number, &mut runtime)).collect::<Result<Vec<_>>>()
                })
            })
            .collect();
        let calls = callers
            .into_iter()
            .map(|caller| caller.join().map_err(|_panic| anyhow::anyhow!("a caller panicked"))?);
        calls.collect::<Result<Vec<_>>>()
    })?;
    let calls: Vec<Traced> = calls.into_iter().flatten().collect();
    clock::poll("the spans of all calls", machine::patience(), || {
        let received = receiver.received();
        let sampled = calls.iter().filter(|call| call.is_sampled());
        let arrived = sampled.filter(|call| call.spans(&received).len() >= 2).count();
        Ok((2 * arrived >= calls.len()).then_some(()))
    })?;
    // What it has not sent yet comes at its end.
    let errors = agent.errors.clone();
    let status = agent.end(End::Stopped)?;
    let said = fs::read_to_string(errors)?;
    ensure!(status.success(), "{status}: {said}");
    refusal::check(&said)?;
    let received = receiver.received();
    ensure!(received.problems.is_empty(), "{:?}", received.problems);
    calls.iter().try_for_each(|call| call.check(&received))
}
