//! One node's pod of the DaemonSet: the kubelet's work for it, and its surroundings.

use std::{fs, net::SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tests::{
    clock, command, http,
    kubelet::{Kubelet, Pod, Started},
    machine,
    manifest::{self, Agent, Cluster, Probe},
    node::Node,
    thread, tls,
};

/// The node name in the downward API.
pub(super) const NODE: &str = "node-1";
/// The differences from the manifest.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Arguments after the manifest's own (the chart's `extraArgs`).
    pub(super) arguments: Vec<String>,
    /// Capabilities besides the manifest's own.
    pub(super) capabilities: Vec<String>,
    pub(super) without_capability: Option<&'static str>,
    /// The mount point in the container of the mount to leave out.
    pub(super) without_mount: Option<&'static str>,
}

/// A running pod. Dropping it removes the pod, because no other pod may have its name meanwhile.
pub(super) struct Deployment {
    kubelet: Kubelet,
    agent: Agent,
    started: Started,
    cluster: Cluster,
    is_over: bool,
    _secret: TempDir,
    _own: Option<TempDir>,
}

impl Deployment {
    /// Starts the pod and waits until its startup probe succeeds.
    pub(super) fn start(node: &Node, changes: Changes) -> Result<Self> {
        let mut deployment = Self::create(node, changes)?;
        let startup = deployment.agent.startup.clone();
        let outcome = startup.wait(startup.patience, || deployment.ensure_alive());
        outcome.map_err(|error| error.context(deployment.log().unwrap_or_default()))?;
        Ok(deployment)
    }

    /// Starts a pod that ends by itself. Returns its exit code and its log.
    pub(super) fn fail(node: &Node, changes: Changes) -> Result<(i32, String)> {
        let mut deployment = Self::create(node, changes)?;
        let exit = deployment.kubelet.wait_exit(&deployment.started.id, machine::patience())?;
        let log = deployment.log()?;
        deployment.remove()?;
        Ok((exit.code, log))
    }

    fn create(node: &Node, changes: Changes) -> Result<Self> {
        share_mounts(node)?;
        manifest::import(node.socket())?;
        let secret = tempfile::tempdir()?;
        manifest::secret(secret.path())?;
        let own = if node.is_private() { Some(tempfile::tempdir()?) } else { None };
        let own_place = own.as_ref().map(|own| own.path().to_owned());
        let cluster = Cluster { node: NODE.to_owned(), secret: secret.path().to_owned(), own: own_place };
        let mut agent = manifest::agent(&cluster)?;
        apply(&mut agent.pod, changes)?;
        let mut kubelet = node.kubelet()?;
        let pod = &agent.pod;
        kubelet.prepare(pod)?;
        let sandbox = kubelet.run_sandbox(pod, 0)?;
        let container = pod.containers.first().context("the agent")?;
        let started = kubelet.run_container(pod, &sandbox, container, 0)?;
        Ok(Self { kubelet, agent, started, cluster, is_over: false, _secret: secret, _own: own })
    }

    pub(super) fn wait_ready(&mut self) -> Result<()> {
        let readiness = self.agent.readiness.clone();
        let outcome = readiness.wait(machine::patience(), || self.ensure_alive());
        outcome.map_err(|error| {
            let reasons = readiness.ask().map_or_else(|error| error.to_string(), |answer| answer.body);
            error.context(reasons).context(self.log().unwrap_or_default())
        })
    }

    pub(super) fn readiness(&self) -> &Probe {
        &self.agent.readiness
    }

    pub(super) fn liveness(&self) -> &Probe {
        &self.agent.liveness
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.agent.readiness.address
    }

    /// Its entry in Prometheus' scrape configuration.
    pub(super) fn scrape(&self) -> Result<Value> {
        manifest::scrape(&self.cluster, self.address())
    }

    /// Returns the answer to a client with the token. A client without it is refused.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        let refused = http::get(tls::connect(self.address())?, path, &[])?;
        ensure!(refused.status == 401, "{path} without the token: {}", refused.status);
        let token = format!("Bearer {}", manifest::TOKEN);
        http::get(tls::connect(self.address())?, path, &[("Authorization", &token)])?.ok()
    }

    /// Returns the output of a command that runs in the agent's container, whatever its exit code.
    pub(super) fn run(&mut self, command: &[&str]) -> Result<String> {
        let answer = self.kubelet.cri().exec(&self.started.id, command)?;
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr))
    }

    /// Checks that its process has only the rights that the manifest gives, and can get no others.
    pub(super) fn check_rights(&self) -> Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.started.pid))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        ensure!(field("NoNewPrivs:") == Some("1"), "it could gain privileges: {status}");
        ensure!(field("Seccomp:") == Some("2"), "it has no seccomp filter: {status}");
        let report: Value = serde_json::from_str(&self.get("/v1/doctor")?)?;
        let held = report["agent"]["capabilities"].as_array().context("its capabilities")?;
        let given = &self.agent.pod.containers.first().context("the agent")?.security;
        ensure!(!given.privileged, "it is privileged");
        let given = &given.capabilities.as_ref().context("a list of capabilities")?.add_capabilities;
        for capability in held {
            let name = capability.as_str().context("a name")?.to_uppercase();
            ensure!(given.contains(&name), "{name} was not given: {given:?}");
        }
        let kept = thread::capabilities(self.started.pid.try_into()?, "CapEff")?;
        ensure!(kept.iter().any(|held| *held != 0), "no thread can read about other processes");
        Ok(())
    }

    /// Waits for such an event in its log and returns the first one.
    pub(super) fn wait_for_event(&self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = clock::poll("the event in the pod's log", machine::patience(), || {
            let log = self.log()?;
            let mut events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
            Ok(events.find(&wanted))
        });
        found.map_err(|error| error.context(self.log().unwrap_or_default()))
    }

    /// Ends it normally, as the kubelet does, and removes it.
    pub(super) fn end(mut self) -> Result<()> {
        self.kubelet.cri().stop_container(&self.started.id, self.agent.grace)?;
        let exit = self.kubelet.wait_exit(&self.started.id, machine::patience())?;
        ensure!(exit.code == 0, "the agent ended with {exit:?}: {}", self.log()?);
        self.remove()
    }

    fn remove(mut self) -> Result<()> {
        self.is_over = true;
        self.kubelet.end(&self.agent.pod)
    }

    fn ensure_alive(&mut self) -> Result<()> {
        // A zombie has ended too. The runtime's shim reaps it.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.started.pid)).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            bail!("the agent has ended: {}", self.log().unwrap_or_default());
        }
        Ok(())
    }

    fn log(&self) -> Result<String> {
        log(&self.agent.pod)
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if !self.is_over {
            // Ignores an error here, so that the test's own failure is reported.
            self.kubelet.end(&self.agent.pod).ok();
        }
    }
}

/// Runs the pod of an uninstall. Returns its output when it is done.
pub(super) fn uninstall(node: &Node) -> Result<String> {
    let pod = manifest::detacher(&Cluster { node: NODE.to_owned(), ..Cluster::default() })?;
    let mut kubelet = node.kubelet()?;
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    let container = pod.containers.first().context("its container")?;
    kubelet.run_container(&pod, &sandbox, container, 0)?;
    // It lingers until it is removed.
    let said = clock::poll("what the uninstall says", machine::patience(), || {
        Ok(Some(log(&pod)?).filter(|said| !said.is_empty()))
    });
    kubelet.end(&pod)?;
    said
}

/// Returns the log of the pod's container in the runtime's format: `TIME stdout F TEXT`.
fn log(pod: &Pod) -> Result<String> {
    let name = &pod.containers.first().context("its container")?.name;
    let log = Kubelet::log_directory(pod).join(name).join("0.log");
    let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    let line = |line: &str| Some(format!("{}\n", line.splitn(4, ' ').nth(3)?));
    Ok(text.lines().filter_map(line).collect())
}

/// Makes the mounts shared, as systemd does on every node. Without that, a runtime passes no mounts on to a
/// container. The mounts of this machine itself stay as they are.
fn share_mounts(node: &Node) -> Result<()> {
    // The link of a first process with more rights than this one is unreadable. Then the two namespaces
    // differ.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if node.is_private() && namespace("self") == namespace("1") {
        return Ok(());
    }
    command::run("mount", &["--make-rshared", "/"])
}

fn apply(pod: &mut Pod, changes: Changes) -> Result<()> {
    let container = pod.containers.first_mut().context("the agent")?;
    container.arguments.extend(changes.arguments);
    let mounts = container.mounts.len();
    container.mounts.retain(|mount| Some(&*mount.container_path) != changes.without_mount);
    ensure!(
        changes.without_mount.is_none() || container.mounts.len() < mounts,
        "the manifest does not have this mount"
    );
    let capabilities = container.security.capabilities.as_mut().context("capabilities")?;
    for name in changes.capabilities {
        if !capabilities.add_capabilities.contains(&name) {
            capabilities.add_capabilities.push(name);
        }
    }
    let count = capabilities.add_capabilities.len();
    capabilities.add_capabilities.retain(|name| Some(&**name) != changes.without_capability);
    ensure!(
        changes.without_capability.is_none() || capabilities.add_capabilities.len() < count,
        "the manifest does not have this capability"
    );
    // This machine may lack SYS_RESOURCE. Since Linux 5.11 the agent does not need it.
    if !machine::has_sys_resource()? {
        capabilities.add_capabilities.retain(|name| name != "SYS_RESOURCE");
    }
    Ok(())
}
