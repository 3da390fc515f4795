//! The agent as it is deployed. The shipped image is imported and runs in a pod made from the manifest. The
//! manifest's probes check it, and Prometheus scrapes it as the manifest says.

mod deployment;

use std::{collections::BTreeSet, fs, io::ErrorKind, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock, command, keyed::Faults, loaded, machine, node::Node, program, prometheus::Prometheus, story,
    story::Stage,
};

use deployment::{Changes, Deployment};

use crate::verdict::declared_store;

const LEAK: &str = "SandprobeLeakedAddresses";
/// Alerts that this story may cause too, and that the test does not require.
const OTHERS: [&str; 2] = ["SandprobeDuplicateSandboxes", "SandprobeTeardownOutOfOrder"];

/// Shorter than the default, so that a test ends. Long enough for the runtime to finish its part.
fn grace() -> String {
    format!("--leak-grace={}s", if machine::is_emulated() { 15 } else { 5 })
}

/// Returns the arguments that an operator adds for the store of an unknown plugin (the chart's `extraArgs`).
fn store(node: &Node) -> Result<Vec<String>> {
    let store = declared_store(node).context("the plugin's store")?;
    Ok(vec![grace(), format!("--ipam-store={store}")])
}

/// Returns the sum of the series with this name and all these labels. `None`: there is none.
fn value(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_one = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
            && labels.iter().all(|label| line.contains(label))
    };
    let values = metrics.lines().filter(is_one).map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.reduce(|sum, one| Some(sum? + one?)).flatten()
}

#[test]
fn the_deployed_agent_reports_a_leak_and_prometheus_alerts() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    // The capabilities that docs/install.md adds on a kernel without fentry and kprobes.
    let capabilities: &[&str] =
        if machine::has_kprobes() { &[] } else { &["NET_ADMIN", "NET_BROADCAST", "SYSLOG"] };
    let capabilities = capabilities.iter().map(ToString::to_string).collect();
    let changes = Changes { arguments: store(&node)?, capabilities, ..Changes::default() };
    // Removes the hooks of other tests' agents.
    detach()?;
    let before = loaded::programs()?;
    let mut agent = Deployment::start(&node, changes)?;
    agent.wait_ready()?;
    agent.check_rights()?;
    if machine::has_kprobes() {
        sees_what_root_sees(&agent)?;
    }
    let prometheus = Prometheus::start(&agent.scrape()?)?;

    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&story::job("leaky"))?;
    let address = truth.pods[0].sandboxes[1].addresses.first().context("an address")?;
    let leak = agent.wait_for_event(|event| {
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
    // The agent may answer a scrape with the values of the one before for a moment.
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
    ensure!(names.into_iter().all(|name| name == LEAK || OTHERS.contains(&name)), "{firing:#?}");
    let healthy = prometheus.healthy_rules()?;
    ensure!(healthy.len() > 5 && healthy.iter().any(|rule| rule == LEAK), "{healthy:?}");
    drop(prometheus);

    agent.end()?;
    stage.clean()?;
    let left = loaded::programs()?.difference(&before).copied().collect();
    ensure!(!BTreeSet::is_empty(&left), "the hooks ended with the agent");
    let said = deployment::uninstall(&node)?;
    ensure!(said.contains("hooks are detached; /sys/fs/bpf/sandprobe is removed"), "{said}");
    ensure!(!Path::new("/sys/fs/bpf/sandprobe").exists(), "the uninstall has left pins");
    loaded::until_gone(&left)?;
    node.stop()
}

/// The agent in its pod sees every signal that root sees on the node. Its capabilities, the runtime's seccomp
/// profile and its mounts take nothing away.
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

/// Sets `kernel.ftrace_enabled` to 0, so that no program can be attached to a kernel function. Only for a VM:
/// changing it while any program is attached has crashed kernels.
struct Ftrace;

impl Ftrace {
    const SWITCH: &str = "/proc/sys/kernel/ftrace_enabled";

    fn off() -> Result<Self> {
        // The kernel frees the hooks of an earlier agent a moment after they are detached.
        clock::poll("ftrace without users", machine::patience(), || match fs::write(Self::SWITCH, "0") {
            Ok(()) => Ok(Some(Self)),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(None),
            Err(error) => Err(error).with_context(|| format!("write {}", Self::SWITCH)),
        })
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        // Most tests after this one need it. They fail with a message if it stays off.
        fs::write(Self::SWITCH, "1").ok();
    }
}

/// Returns the capabilities that the agent's message asks for: `--set 'capabilities={A,B}'`.
fn wanted(reasons: &str) -> Result<BTreeSet<String>> {
    let (_, rest) = reasons.split_once("--set 'capabilities={").with_context(|| reasons.to_owned())?;
    let (list, _) = rest.split_once("}'").with_context(|| reasons.to_owned())?;
    Ok(list.split(',').map(str::to_owned).collect())
}

/// Returns the reasons why the agent is not ready, without the reading of the node, which is a reason until
/// it is done.
fn reasons(agent: &Deployment) -> Result<String> {
    clock::poll("the reasons of /readyz", machine::patience(), || {
        let answer = agent.readiness().ask()?;
        ensure!(answer.status == 503, "ready: {}", answer.body);
        Ok(Some(answer.body).filter(|reasons| !reasons.contains("has not all been read")))
    })
}

/// Ends the hooks that the last agent has left on the node.
fn detach() -> Result<()> {
    let done = Command::new("sandprobe").arg("detach").output()?;
    ensure!(done.status.success(), "{done:?}");
    Ok(())
}

#[test]
fn without_a_capability_the_agent_runs_and_names_it_and_its_setting() -> Result<()> {
    let node = Node::start()?;
    let (code, message) =
        Deployment::fail(&node, Changes { without_capability: Some("PERFMON"), ..Changes::default() })?;
    ensure!(
        code == 2 && message.contains("it lacks CAP_PERFMON"),
        "without PERFMON the agent ended with {code}: {message}"
    );
    ensure!(wanted(&message)?.contains("PERFMON") && wanted(&message)?.contains("BPF"), "{message}");
    if machine::has_kprobes() && node.is_private() {
        // On this machine every signal is seen, and a test must not change its kernel.
        return node.stop();
    }
    // The agent of another test has left hooks that see everything.
    detach()?;
    let _off = machine::has_kprobes().then(Ftrace::off).transpose()?;
    // With the chart's defaults it runs, and names the missing capabilities.
    let mut agent = Deployment::start(&node, Changes::default())?;
    let message = reasons(&agent)?;
    for unseen in ["netns dropped", "address ipv4", "address ipv6"] {
        ensure!(message.contains(&format!("{unseen} is not seen: ")), "{message}");
    }
    for name in ["CAP_SYSLOG", "CAP_NET_ADMIN", "CAP_NET_BROADCAST"] {
        ensure!(message.contains(name), "no {name}: {message}");
    }
    ensure!(!message.contains("kptr_restrict"), "{message}");
    let metrics = agent.get("/metrics")?;
    ensure!(value(&metrics, "sandprobe_ready", &[]) == Some(0.0), "{metrics}");
    // A restart would not help, so the agent is alive.
    ensure!(agent.liveness().ask()?.status == 200, "the kubelet would restart the agent");
    let doctor = agent.run(&["/sandprobe", "doctor"])?;
    ensure!(wanted(&doctor)? == wanted(&message)?, "{doctor}");
    agent.end()?;
    // Debian's kernels need SYS_ADMIN for the tracepoints of system calls.
    let paranoid = machine::perf_event_paranoid()? > 2;
    ensure!(wanted(&doctor)?.contains("SYS_ADMIN") == paranoid, "{doctor}");
    ensure!(message.contains("netns created is not seen: ") == paranoid, "{message}");
    // With the capabilities of its message it sees everything.
    let capabilities = wanted(&doctor)?.into_iter().collect();
    let mut agent = Deployment::start(&node, Changes { capabilities, ..Changes::default() })?;
    agent.wait_ready()?;
    agent.end()?;
    // Tracepoints see the other signals, and they need tracefs. The next agent would take over this one's
    // hooks.
    detach()?;
    let agent = Deployment::start(&node, Changes { without_mount: Some("/sys"), ..Changes::default() })?;
    let message = reasons(&agent)?;
    ensure!(
        message.contains("netns created is not seen: ") && message.contains("/sys among hostPaths"),
        "{message}"
    );
    agent.end()?;
    node.stop()
}
