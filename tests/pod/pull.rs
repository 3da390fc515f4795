//! Compares the parts of a real pod's `image` phase with what the registry saw of the pull.

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock, http,
    image::{Image, WITNESS},
    kubelet::{Container, Pod},
    machine,
    node::Node,
    program,
    registry::{Registry, Served},
    stream::Stream,
};

/// How long the layer takes: longer than the shortest phase that is divided.
const LAYER_TAKES: Duration = Duration::from_millis(2000);
/// A runtime logs with the wall clock, and a little later than it acts.
const APART: Duration = Duration::from_millis(250);

fn number(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("not a number: {value}"))
}

/// A part with its beginning and end.
#[derive(Debug)]
struct Part {
    name: String,
    begin: u64,
    end: u64,
}

/// Returns the `image` phase of the pod's only container, once it is divided.
fn image_phase(address: &str, pod: &Pod) -> Result<Option<Value>> {
    let answer = http::get(TcpStream::connect(address)?, "/v1/pods", &[])?.ok()?;
    let answer: Value = serde_json::from_str(&answer)?;
    let pods = answer["pods"].as_array().with_context(|| format!("no pods: {answer}"))?;
    let phases =
        pods.iter().filter(|it| it["uid"] == pod.uid).filter_map(|it| it["start"]["phases"].as_array());
    let mut images = phases.flatten().filter(|it| it["phase"] == "image" && it["parts"].is_array());
    Ok(images.next().cloned())
}

fn parts(phase: &Value) -> Result<Vec<Part>> {
    let all = phase["parts"].as_array().context("no parts")?.iter();
    all.map(|it| {
        let begin = number(&it["begin_ns"])?;
        let name = it["part"].as_str().context("a part has no name")?.to_owned();
        Ok(Part { name, begin, end: begin + number(&it["duration_ns"])? })
    })
    .collect()
}

fn check(phase: &Value, (before, after): (u64, u64), served: &[Served]) -> Result<()> {
    let apart = u64::try_from(APART.as_nanos())?;
    let parts = parts(phase)?;
    let first = served.iter().map(|it| it.asked).min().context("the registry was asked for nothing")?;
    let layer = served.iter().find(|it| it.is_layer).context("the layer was not fetched")?;
    let pull = parts.iter().find(|it| it.name == "pull").context("there is no pull")?;
    ensure!(before <= pull.begin + apart && pull.begin <= first + apart, "the pull did not begin then");
    let unpack = parts.iter().find(|it| it.name == "unpack");
    let over = unpack.unwrap_or(pull).end;
    ensure!(layer.done <= over + apart && over <= after + apart, "the pull did not end then");
    if let Some(unpack) = unpack {
        ensure!(unpack.begin == pull.end, "the unpacking does not follow the pull");
        ensure!(pull.end.abs_diff(layer.done) <= apart, "the layer was not fetched then");
    }
    let create = parts.last().filter(|it| it.name == "create").context("the creation is not the last")?;
    ensure!(create.begin + apart >= over, "the container was made before its image was there");
    Ok(())
}

#[test]
fn a_pull_is_told_as_the_registry_saw_it() -> Result<()> {
    let node = Node::start()?;
    let image = Image::program(WITNESS, &program::path("witness")?)?;
    let registry = Registry::start(&image, LAYER_TAKES)?;
    let reference = registry.reference();
    let mut kubelet = node.kubelet()?;
    // Picks a free port.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let stream = Stream::start(&["run", "--listen", &address, "--socket", "none", "--state-dir", "none"])?;
    let command = ["/bin/witness", "18081", "0"].map(str::to_owned);
    let pod = Pod::new("pulled-0", "7d1cb95b-0000-4000-8000-000000000001")
        .with(Container::new("main", &reference, &command));
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    let before = clock::boot_ns()?;
    kubelet.cri().pull_image(&reference)?;
    let after = clock::boot_ns()?;
    kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;
    let phase = clock::poll("the parts of the image", machine::patience(), || image_phase(&address, &pod))?;
    stream.end()?;
    let served = registry.served();
    check(&phase, (before, after), &served)
        .with_context(|| format!("from {before} to {after} the registry served {served:#?}\n{phase:#}"))?;
    kubelet.end(&pod)?;
    kubelet.cri().remove_image(&reference)?;
    node.stop()
}
