//! The agent as it is deployed: the image that is given to others, imported, in a pod as the manifest has it, asked by the
//! manifest's probes and scraped as the manifest says.

mod deployment;

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock, command, keyed::Faults, machine, node::Node, program, prometheus::Prometheus, story, story::Stage,
};

use deployment::{Deployment, Wish};

use crate::verdict::declared_store;

const LEAK: &str = "SandprobeLeakedAddresses";
/// Of the same story; it is no part of the must.
const SECOND: &str = "SandprobeDuplicateSandboxes";

/// Short of the default, so that a test ends; long enough for the runtime to do its part.
fn grace() -> String {
    format!("--leak-grace={}s", if machine::is_emulated() { 15 } else { 5 })
}

/// What an operator adds for a store of a plugin that nobody knows (the chart's `extraArgs`).
fn store(node: &Node) -> Result<Vec<String>> {
    let store = declared_store(node).context("the plugin's store")?;
    Ok(vec![grace(), format!("--ipam-store={store}")])
}

/// The sum of the series of this name that have all these labels; `None`: there is none.
fn value(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_one = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
            && labels.iter().all(|label| line.contains(label))
    };
    let values = metrics.lines().filter(is_one).map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.reduce(|sum, one| Some(sum? + one?)).flatten()
}

#[test]
fn in_its_pod_it_tells_of_a_leak_and_prometheus_alerts() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    // What docs/install.md adds where there is neither fentry nor kprobes.
    let capabilities: &[&str] =
        if machine::has_kprobes() { &[] } else { &["NET_ADMIN", "NET_BROADCAST", "SYSLOG"] };
    let capabilities = capabilities.iter().map(ToString::to_string).collect();
    let wish = Wish { arguments: store(&node)?, capabilities, ..Wish::default() };
    let mut agent = Deployment::start(&node, wish)?;
    agent.wait_ready()?;
    agent.check_rights()?;
    if machine::has_kprobes() {
        sees_what_root_sees(&agent)?;
    }
    let prometheus = Prometheus::start(&agent.scrape()?)?;

    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&story::job("leaky"))?;
    let address = truth.pods[0].sandboxes[1].addresses.first().context("an address")?;
    let leak = agent.until_told(|event| {
        event["event"] == "finding.confirmed" && event["finding"]["kind"] == "leaked_address"
    })?;
    ensure!(leak["finding"]["detail"]["address"] == **address, "{leak:#}");
    ensure!(leak["finding"]["pod"]["name"] == "leaky" && leak["node"] == deployment::NODE, "{leak:#}");

    let leaked = ["kind=\"leaked_address\"", "stage=\"confirmed\""];
    let series = [
        ("sandprobe_findings", &leaked[..]),
        ("sandprobe_ip_leaks_total", &["reason=\"del_blind\""]),
        ("sandprobe_ready", &[]),
    ];
    // What was looked up for one scrape is what the next is told too, for a moment.
    clock::poll("the leak in /metrics", machine::patience(), || {
        let metrics = agent.get("/metrics")?;
        let is_there = |(name, labels): &(&str, &[&str])| value(&metrics, name, labels) == Some(1.0);
        Ok(series.iter().all(is_there).then_some(()))
    })?;

    let alert = prometheus.wait_for(LEAK)?;
    ensure!(alert["labels"]["instance"] == agent.address().to_string(), "{alert:#}");
    ensure!(alert["labels"]["job"] == "sandprobe" && alert["labels"]["severity"] == "warning", "{alert:#}");
    ensure!(alert["value"] == "1e+00", "{alert:#}");
    let firing = prometheus.firing()?;
    let names: BTreeSet<_> =
        firing.iter().filter_map(|alert| alert["labels"]["alertname"].as_str()).collect();
    ensure!(names.is_subset(&BTreeSet::from([LEAK, SECOND])), "{firing:#?}");
    let healthy = prometheus.healthy_rules()?;
    ensure!(healthy.len() > 5 && healthy.iter().any(|rule| rule == LEAK), "{healthy:?}");
    drop(prometheus);

    agent.end()?;
    stage.clean()?;
    node.stop()
}

/// Neither its capabilities nor the runtime's seccomp profile nor its mounts keep anything from it that root on the node
/// would see.
fn sees_what_root_sees(agent: &Deployment) -> Result<()> {
    let signals = |report: &str| -> Result<Value> {
        let mut report: Value = serde_json::from_str(report)?;
        ensure!(report["signals"].as_array().is_some_and(|signals| !signals.is_empty()), "{report:#}");
        Ok(report["signals"].take())
    };
    let inside = signals(&agent.get("/v1/doctor")?)?;
    let sandprobe = program::path("sandprobe")?.display().to_string();
    let outside = signals(&command::output(&sandprobe, &["doctor", "--output=json"])?)?;
    ensure!(inside == outside, "in the pod\n{inside:#}\non the node\n{outside:#}");
    Ok(())
}

/// `kernel.ftrace_enabled` is 0: no program can be attached to a function of the kernel. Of a VM alone: to turn it with
/// programs attached, anybody's, has brought kernels down.
struct Ftrace;

impl Ftrace {
    const SWITCH: &str = "/proc/sys/kernel/ftrace_enabled";

    fn off() -> Result<Self> {
        fs::write(Self::SWITCH, "0").with_context(|| format!("write {}", Self::SWITCH))?;
        Ok(Self)
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        // Of what runs after this, most needs it, and says so.
        fs::write(Self::SWITCH, "1").ok();
    }
}

/// What its capabilities have to be for all to be seen, as it says itself: `--set 'capabilities={A,B}'`.
fn wanted(reasons: &str) -> Result<BTreeSet<String>> {
    let (_, rest) = reasons.split_once("--set 'capabilities={").with_context(|| reasons.to_owned())?;
    let (list, _) = rest.split_once("}'").with_context(|| reasons.to_owned())?;
    Ok(list.split(',').map(str::to_owned).collect())
}

/// Why it is not ready, once what is on the node has been read: until then that is a reason too.
fn reasons(agent: &Deployment) -> Result<String> {
    clock::poll("the reasons of /readyz", machine::patience(), || {
        let answer = agent.readiness().ask()?;
        ensure!(answer.status == 503, "ready: {}", answer.body);
        Ok(Some(answer.body).filter(|reasons| !reasons.contains("has not all been read")))
    })
}

#[test]
fn where_a_capability_is_lacking_it_runs_and_says_which_and_how_to_give_it() -> Result<()> {
    let node = Node::start()?;
    let (code, said) =
        Deployment::fail(&node, Wish { without_capability: Some("PERFMON"), ..Wish::default() })?;
    ensure!(
        code == 2 && said.contains("it lacks CAP_PERFMON"),
        "without PERFMON it ended with {code}: {said}"
    );
    ensure!(wanted(&said)?.contains("PERFMON") && wanted(&said)?.contains("BPF"), "{said}");
    if machine::has_kprobes() && node.is_private() {
        // Every signal is seen, and this machine's kernel is not a test's to change.
        return node.stop();
    }
    let _off = machine::has_kprobes().then(Ftrace::off).transpose()?;
    // As the chart has it, nothing added: it runs, and says what it lacks.
    let mut agent = Deployment::start(&node, Wish::default())?;
    let said = reasons(&agent)?;
    for unseen in ["netns dropped", "address ipv4", "address ipv6"] {
        ensure!(said.contains(&format!("{unseen} is not seen: ")), "{said}");
    }
    for name in ["CAP_SYSLOG", "CAP_NET_ADMIN", "CAP_NET_BROADCAST"] {
        ensure!(said.contains(name), "no {name}: {said}");
    }
    ensure!(!said.contains("kptr_restrict"), "{said}");
    let metrics = agent.get("/metrics")?;
    ensure!(value(&metrics, "sandprobe_ready", &[]) == Some(0.0), "{metrics}");
    // To start it again would help nobody.
    ensure!(agent.liveness().ask()?.status == 200, "the kubelet would start it again");
    let doctor = agent.run(&["/sandprobe", "doctor"])?;
    ensure!(wanted(&doctor)? == wanted(&said)?, "{doctor}");
    agent.end()?;
    // Debian's kernels want it for the tracepoints of system calls.
    let paranoid = machine::perf_event_paranoid()? > 2;
    ensure!(wanted(&doctor)?.contains("SYS_ADMIN") == paranoid, "{doctor}");
    ensure!(said.contains("netns created is not seen: ") == paranoid, "{said}");
    // With just what it said, all is seen.
    let capabilities = wanted(&doctor)?.into_iter().collect();
    let mut agent = Deployment::start(&node, Wish { capabilities, ..Wish::default() })?;
    agent.wait_ready()?;
    agent.end()?;
    // The rest is seen by tracepoints, for which there has to be tracefs.
    let agent = Deployment::start(&node, Wish { without_mount: Some("/sys"), ..Wish::default() })?;
    let said = reasons(&agent)?;
    ensure!(said.contains("netns created is not seen: ") && said.contains("/sys among hostPaths"), "{said}");
    agent.end()?;
    node.stop()
}
