//! Compares the reported times at which containers begin to listen with the times that their programs print.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock,
    image::{Image, WITNESS},
    kubelet::{Container, Kubelet, Pod},
    machine,
    node::Node,
    program, skipped,
    stream::{Received, Stream},
};

use crate::LIMIT;

const PORT: u64 = 18_080;
const PROXY_PORT: u64 = 15_001;
/// How long the program waits before it listens, in milliseconds.
const AFTER_MS: u64 = 300;

/// Returns a container that listens on a port after `after_ms` milliseconds and prints the times before and
/// after that.
fn listener(name: &str, port: u64, after_ms: u64) -> Container {
    let command = ["/bin/witness".to_owned(), port.to_string(), after_ms.to_string()];
    Container::new(name, WITNESS, &command)
}

/// Returns the times before and after its program began to listen, by its own output.
fn witnessed(pod: &Pod, container: &str) -> Result<(u64, u64)> {
    let log = Kubelet::log_directory(pod).join(format!("{container}/0.log"));
    clock::poll("the container's output", machine::patience(), || {
        let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
        let Some((_, printed)) = text.lines().find_map(|line| line.split_once(" stdout F listening ")) else {
            return Ok(None);
        };
        let (from, to) =
            printed.split_once(' ').with_context(|| format!("the container printed {printed:?}"))?;
        Ok(Some((from.parse()?, to.parse()?)))
    })
}

fn number(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("not a number: {value}"))
}

/// Returns the events with this name of one container of a pod.
fn events<'a>(received: &'a Received, pod: &Pod, name: &'a str, container: &str) -> Vec<&'a Value> {
    let is_its = |event: &&Value| event["pod"]["uid"] == pod.uid && event["container"]["name"] == container;
    received.named(name).filter(is_its).collect()
}

fn check(
    received: &Received,
    pod: &Pod,
    container: &str,
    port: u64,
    (from, to): (u64, u64),
) -> Result<Duration> {
    let [event] = events(received, pod, "container.listening", container)[..] else {
        anyhow::bail!("{container} is not reported once as listening");
    };
    let at = number(&event["boot_ns"])?;
    ensure!((from..=to).contains(&at), "it listened from {from} to {to}: {event}");
    ensure!(event["listening"]["port"] == port && event["listening"]["family"] == "ipv4", "{event}");
    let [started] = events(received, pod, "container.started", container)[..] else {
        anyhow::bail!("{container} did not start once");
    };
    let began = number(&started["boot_ns"])?;
    ensure!(number(&event["listening"]["after_ns"])? == at - began, "{event}");

    let mut starts = received.named("pod.started").filter(|event| event["pod"]["uid"] == pod.uid);
    let start = &starts.next().context("the start is not reported")?["start"];
    let all = start["listening"].as_array().with_context(|| format!("no container listens: {start}"))?;
    let its = all.iter().find(|it| it["container"]["name"] == container).context("it does not listen")?;
    ensure!(number(&its["begin_ns"])? == began && number(&its["duration_ns"])? == at - began, "{its}");
    let phases = start["phases"].as_array().context("phases")?;
    let sum = phases.iter().map(|phase| number(&phase["duration_ns"])).sum::<Result<u64>>()?;
    ensure!(sum == number(&start["total_ns"])?, "the phases are not the whole start: {start}");
    Ok(Duration::from_nanos(to - from))
}

#[test]
fn containers_listen_when_their_programs_say_so() -> Result<()> {
    skipped::retry(check_attempt)
}

fn check_attempt(attempt: u32) -> Result<()> {
    // Each attempt has pods of its own, because events of the attempt before may still come.
    let uid = |number: u32| format!("6c1cb95b-{attempt:04}-4000-8000-{number:012}");
    let node = Node::start()?;
    Image::program(WITNESS, &program::path("witness")?)?.import(node.socket())?;
    let mut kubelet = node.kubelet()?;
    let mut stream = Stream::start(&["watch"])?;
    let web = Pod::new("web-0", &uid(1))
        .with_init(Container::shell("init", "true"))
        .with(listener("proxy", PROXY_PORT, 0))
        .with(listener("main", PORT, AFTER_MS));
    // A pod on the node's network. The agent's own server listens in the same namespace.
    let host =
        Pod { host_network: true, ..Pod::new("host-0", &uid(2)).with(listener("main", PORT, AFTER_MS)) };
    let silent = Pod::new("silent-0", &uid(3)).with(Container::shell("main", "sleep 600"));
    let mut printed = Vec::new();
    for (pod, listeners) in
        [(&web, &[("proxy", PROXY_PORT), ("main", PORT)][..]), (&host, &[("main", PORT)]), (&silent, &[])]
    {
        kubelet.start(pod, LIMIT)?;
        for (container, port) in listeners {
            printed.push((pod, *container, *port, witnessed(pod, container)?));
        }
        // The agent reports the start at the latest with the pod's end.
        kubelet.end(pod)?;
        let is_its = |event: &Value| event["event"] == "pod.started" && event["pod"]["uid"] == pod.uid;
        stream.until(&format!("the start of {}", pod.name), is_its)?;
    }
    let (received, _) = stream.end()?;
    node.stop()?;
    let lost = received.lost()?;
    ensure!(lost == 0, "{lost} runs were skipped, so events may be missing");
    for (pod, container, port, truth) in printed {
        let around = check(&received, pod, container, port, truth);
        let around = around.with_context(|| format!("container {container} of {}", pod.name))?;
        #[expect(clippy::print_stdout, reason = "the test prints what it measured")]
        {
            println!("{} {container}: within the {around:?} around bind and listen", pod.name);
        }
    }
    ensure!(received.named("container.listening").count() == 3, "other containers are reported as listening");
    Ok(())
}
