//! The agent reports problems to the API server of the cluster, whatever the server does.

use std::{fs, process::Stdio, time::Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tests::{
    api_server::{ApiServer, Mood},
    clock, held,
    live::Shared,
    machine,
};

use super::{
    MEMORY_KB,
    client::{Agent, get},
};
use crate::{
    cni::call::{Environment, Runtime},
    container::new_id,
};

const NODE: &str = "worker-1";
const CONDITION: &str = "SandboxHealthy";
/// The number of pods waiting for an ADD at which a finding is critical.
const PODS: usize = 20;

/// A node whose network is down, and its cluster.
struct Scene {
    server: ApiServer,
    kubeconfig: String,
    _place: TempDir,
}

impl Scene {
    fn new() -> Result<Self> {
        let place = tempfile::tempdir()?;
        let server = ApiServer::start(NODE)?;
        let kubeconfig = server.kubeconfig(place.path())?.display().to_string();
        Ok(Self { server, kubeconfig, _place: place })
    }

    /// Starts an agent that reports to the cluster.
    fn agent(&self, state: &str) -> Result<Agent> {
        let flags = ["--kubernetes-events", "--kubernetes-condition", "--node", NODE, "--kubeconfig"];
        Agent::start_with(state, &[&flags[..], &[&self.kubeconfig]].concat(), Stdio::null(), "/readyz")
    }
}

/// Ends the ADDs of many pods with an error of this plugin.
fn fail_adds(plugin: &'static str) -> Result<()> {
    let mut runtime = Runtime::start()?.calling(plugin);
    for pod in 0..PODS {
        let of = if plugin == "bridge" { 1 } else { 2 };
        let uid = format!("00000000-0000-4000-800{of}-{pod:012}");
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={plugin}-{pod};K8S_POD_UID={uid}"
        );
        let add = Environment::of_add(&new_id()?).with("CNI_ARGS", &args);
        runtime.call(&add.with("CNI_NETNS", &format!("/run/netns/cni-{plugin}-{pod}")), &[])?;
    }
    Ok(())
}

fn failing(agent: &Agent, plugin: &'static str) -> Result<()> {
    fail_adds(plugin)?;
    let key = format!("cni_failing/{plugin}");
    clock::poll("the finding", machine::patience(), || {
        let answer: Value = serde_json::from_str(&get(agent.address, "/v1/findings")?)?;
        let all = answer["findings"].as_array().context("no findings")?;
        let is_it = |it: &&Value| it["key"] == *key && it["stage"] == "confirmed";
        Ok(all.iter().find(is_it).filter(|it| it["severity"] == "critical").map(drop))
    })
}

fn events(server: &ApiServer, number: usize) -> Result<Vec<Value>> {
    let told = clock::poll("the Events", machine::patience(), || {
        Ok(Some(server.events()).filter(|it| it.len() == number))
    });
    told.with_context(|| format!("not {number} Events: {:#?}", server.answered()))
}

fn condition(server: &ApiServer, status: &str) -> Result<Value> {
    clock::poll(&format!("the condition {status}"), machine::patience(), || {
        Ok(server.condition(CONDITION).filter(|it| it["status"] == status))
    })
}

#[test]
fn the_cluster_hears_of_a_finding_once_whatever_becomes_of_the_agents() -> Result<()> {
    let _shared = Shared::start()?;
    let scene = Scene::new()?;
    let server = &scene.server;
    let state = tempfile::tempdir()?;
    let state = state.path().to_str().context("the path is no text")?;

    let agent = scene.agent(state)?;
    let well = condition(server, "True")?;
    ensure!(well["reason"] == "NoCriticalFinding" && well["lastHeartbeatTime"].is_string(), "{well}");
    failing(&agent, "bridge")?;
    let told = events(server, 1)?;
    agent.end()?;
    let event = &told[0];
    ensure!(event["type"] == "Warning" && event["reason"] == "CniFailing" && event["count"] == 1, "{event}");
    ensure!(event["metadata"]["namespace"] == "default", "{event}");
    let involved = &event["involvedObject"];
    // `kubectl describe node` finds the Event by this UID.
    ensure!(involved["kind"] == "Node" && involved["name"] == NODE && involved["uid"] == NODE, "{event}");
    let message = event["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("bridge") && message.ends_with("(sandprobe explain cni_failing/bridge)"),
        "{event}"
    );

    // The next agent knows from the last one's state the finding, and that it was reported.
    let before = server.answered().len();
    let agent = scene.agent(state)?;
    let ill = condition(server, "False")?;
    ensure!(ill["reason"] == "CriticalFinding" && ill["message"] == "critical: CniFailing", "{ill}");
    failing(&agent, "ptp")?;
    let all = events(server, 2)?;
    agent.end()?;
    ensure!(all.contains(event), "{all:#?}");
    let answered = server.answered();
    let about_events: Vec<&String> = answered[before..].iter().filter(|it| it.contains("/events")).collect();
    ensure!(about_events == ["POST /api/v1/namespaces/default/events 201"], "{about_events:#?}");
    let other = |it: &&String| !it.ends_with(" 200") && !it.ends_with(" 201") && !it.ends_with(" 409");
    ensure!(server.answered().iter().find(other).is_none(), "{:#?}", server.answered());
    let ready = server.condition("Ready").context("the kubelet's condition is gone")?;
    ensure!(ready["status"] == "True", "{ready}");
    Ok(())
}

/// Reports that the API server does not accept are sent later, and delay nothing.
#[test]
fn an_api_server_in_trouble_keeps_nothing_waiting() -> Result<()> {
    let _shared = Shared::start()?;
    for mood in [Mood::Forbids, Mood::Hangs, Mood::Missing, Mood::Floods] {
        let scene = Scene::new()?;
        let agent = scene.agent("none")?;
        condition(&scene.server, "True")?;
        scene.server.be(mood);
        failing(&agent, "bridge")?;
        let answers = |results: &'static [&'static str]| {
            let metrics = get(agent.address, "/metrics")?;
            Ok(results.iter().any(|result| has(&metrics, "event", result)).then_some(()))
        };
        clock::poll("a request that failed", machine::patience(), || answers(&["failed", "refused"]))?;
        get(agent.address, "/readyz")?;
        let peak = held::kilobytes(agent.id(), "VmHWM")?;
        ensure!(peak < MEMORY_KB, "{mood:?}: {peak} kB");
        if mood != Mood::Hangs {
            scene.server.be(Mood::Well);
            events(&scene.server, 1)?;
            // The agent has received an answer.
            clock::poll("a request that was done", machine::patience(), || answers(&["done"]))?;
        }
        let begun = Instant::now();
        let (ended, printed) = agent.ended()?;
        let took = begun.elapsed();
        ensure!(ended.success() && took < machine::patience(), "{mood:?}: {ended} after {took:?}");
        let lines = |what: &str| printed.lines().filter(|line| line.contains(what)).count();
        ensure!(lines("Events cannot be written to the API server") == 1, "{mood:?}: {printed}");
        let again = lines("Events can be written to the API server");
        ensure!(again == usize::from(mood != Mood::Hangs), "{mood:?}: {printed}");
    }
    Ok(())
}

/// Whether a request about this object had this result.
fn has(metrics: &str, what: &str, result: &str) -> bool {
    let name = format!("sandprobe_kubernetes_requests_total{{result=\"{result}\",what=\"{what}\"}} ");
    metrics.lines().any(|line| line.strip_prefix(&name).is_some_and(|count| count != "0"))
}

#[test]
fn what_cannot_be_reached_at_all_is_said_at_the_start() -> Result<()> {
    let place = tempfile::tempdir()?;
    let broken = place.path().join("broken");
    fs::write(&broken, "clusters: {")?;
    let plugin = place.path().join("plugin");
    fs::write(
        &plugin,
        "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
         clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n\
         users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}}}]\n",
    )?;
    let endless = place.path().join("endless");
    fs::write(
        &endless,
        "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
         clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: /dev/zero}}]\n\
         users: [{name: a, user: {token: abc}}]\n",
    )?;
    let endless = endless.display().to_string();
    let missing = place.path().join("missing").display().to_string();
    let (broken, plugin) = (broken.display().to_string(), plugin.display().to_string());
    for (arguments, said) in [
        (&["--kubernetes-events"][..], "this is not a pod of a cluster; give --kubeconfig FILE"),
        (&["--kubeconfig", &missing], "--kubeconfig needs --kubernetes-events, --kubernetes-condition or"),
        (&["--kubernetes-events", "--kubeconfig", &missing], "cannot use the kubeconfig"),
        (&["--kubernetes-events", "--kubeconfig", &broken], "/broken: it is not a kubeconfig: see line 1"),
        (&["--kubernetes-condition", "--kubeconfig", &plugin], "its user has \"exec\", but"),
        (
            &["--kubernetes-events", "--kubeconfig", &endless],
            "cannot read a certificate authority in /dev/zero: it is not a regular file",
        ),
        (&["--kubernetes-events", "--node", "A/../B"], "\"A/../B\" is not a valid name of a Node object"),
    ] {
        let output = std::process::Command::new(tests::program::agent()?)
            .args(["run", "--no-pin", "--state-dir", "none", "--listen", "none", "--socket", "none"])
            .args(arguments)
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {}: {printed}", output.status);
        ensure!(printed.lines().count() == 1 && printed.contains(said), "{arguments:?}: {printed}");
    }
    Ok(())
}
