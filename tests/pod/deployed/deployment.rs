//! One node's part of the DaemonSet: what the kubelet does for it, and what is around it.

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

/// What the downward API says.
pub(super) const NODE: &str = "node-1";
/// How it is not as the manifest has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    /// Behind the others (the chart's `extraArgs`).
    pub(super) arguments: Vec<String>,
    /// More than the others.
    pub(super) capabilities: Vec<String>,
    pub(super) without_capability: Option<&'static str>,
    /// By its place in the container.
    pub(super) without_mount: Option<&'static str>,
}

/// A pod that runs. Dropped, it is removed: another may not have its name as long as it is there.
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
    /// Until the startup probe has succeeded.
    pub(super) fn start(node: &Node, wish: Wish) -> Result<Self> {
        let mut deployment = Self::create(node, wish)?;
        let startup = deployment.agent.startup.clone();
        let outcome = startup.wait(startup.patience, || deployment.ensure_alive());
        outcome.map_err(|error| error.context(deployment.log().unwrap_or_default()))?;
        Ok(deployment)
    }

    /// One that is expected to end by itself: its exit code, and what it said.
    pub(super) fn fail(node: &Node, wish: Wish) -> Result<(i32, String)> {
        let mut deployment = Self::create(node, wish)?;
        let exit = deployment.kubelet.wait_exit(&deployment.started.id, machine::patience())?;
        let said = deployment.log()?;
        deployment.remove()?;
        Ok((exit.code, said))
    }

    fn create(node: &Node, wish: Wish) -> Result<Self> {
        share_mounts(node)?;
        manifest::import(node.socket())?;
        let secret = tempfile::tempdir()?;
        manifest::secret(secret.path())?;
        let own = if node.is_private() { Some(tempfile::tempdir()?) } else { None };
        let own_place = own.as_ref().map(|own| own.path().to_owned());
        let cluster = Cluster { node: NODE.to_owned(), secret: secret.path().to_owned(), own: own_place };
        let mut agent = manifest::agent(&cluster)?;
        apply(&mut agent.pod, wish)?;
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
            error.context(reasons)
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

    /// How Prometheus is told of it.
    pub(super) fn scrape(&self) -> Result<Value> {
        manifest::scrape(&self.cluster, self.address())
    }

    /// What it answers to who has the token; who has none is told nothing.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        let refused = http::get(tls::connect(self.address())?, path, &[])?;
        ensure!(refused.status == 401, "{path} without the token: {}", refused.status);
        let token = format!("Bearer {}", manifest::TOKEN);
        http::get(tls::connect(self.address())?, path, &[("Authorization", &token)])?.ok()
    }

    /// What a command says that is run beside it in its container, whatever its exit code.
    pub(super) fn run(&mut self, command: &[&str]) -> Result<String> {
        let answer = self.kubelet.cri().exec(&self.started.id, command)?;
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr))
    }

    /// Its process has no right but those that the manifest gives, and can get no other.
    pub(super) fn check_rights(&self) -> Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.started.pid))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        ensure!(field("NoNewPrivs:") == Some("1"), "it could gain rights: {status}");
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
        ensure!(kept.iter().any(|held| *held != 0), "no thread could read of other processes");
        Ok(())
    }

    /// Until such an event is in its log: the first.
    pub(super) fn until_told(&self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = clock::poll("the event in the pod's log", machine::patience(), || {
            let log = self.log()?;
            let mut events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
            Ok(events.find(&wanted))
        });
        found.map_err(|error| error.context(self.log().unwrap_or_default()))
    }

    /// Ends it in order, as the kubelet does, and removes it.
    pub(super) fn end(mut self) -> Result<()> {
        self.kubelet.cri().stop_container(&self.started.id, self.agent.grace)?;
        let exit = self.kubelet.wait_exit(&self.started.id, machine::patience())?;
        ensure!(exit.code == 0, "it ended with {exit:?}: {}", self.log()?);
        self.remove()
    }

    fn remove(mut self) -> Result<()> {
        self.is_over = true;
        self.kubelet.end(&self.agent.pod)
    }

    fn ensure_alive(&mut self) -> Result<()> {
        // Zombies too: whoever is to reap it is the runtime's shim.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.started.pid)).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            bail!("it has ended: {}", self.log().unwrap_or_default());
        }
        Ok(())
    }

    /// What it said, as the runtime wrote it down: `TIME stdout F TEXT`.
    fn log(&self) -> Result<String> {
        let name = &self.agent.pod.containers.first().context("the agent")?.name;
        let log = Kubelet::log_directory(&self.agent.pod).join(name).join("0.log");
        let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
        let line = |line: &str| Some(format!("{}\n", line.splitn(4, ' ').nth(3)?));
        Ok(text.lines().filter_map(line).collect())
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if !self.is_over {
            // What the test failed of is what there is to tell.
            self.kubelet.end(&self.agent.pod).ok();
        }
    }
}

/// As on every node that systemd has started: without that, a runtime passes no mounts on to a container. This machine's
/// own are as they are.
fn share_mounts(node: &Node) -> Result<()> {
    // Which it is of a first process that has more rights than we, nobody can tell; ours is then another.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if node.is_private() && namespace("self") == namespace("1") {
        return Ok(());
    }
    command::run("mount", &["--make-rshared", "/"])
}

fn apply(pod: &mut Pod, wish: Wish) -> Result<()> {
    let container = pod.containers.first_mut().context("the agent")?;
    container.arguments.extend(wish.arguments);
    let mounts = container.mounts.len();
    container.mounts.retain(|mount| Some(&*mount.container_path) != wish.without_mount);
    ensure!(wish.without_mount.is_none() || container.mounts.len() < mounts, "it is not mounted anyway");
    let capabilities = container.security.capabilities.as_mut().context("capabilities")?;
    for name in wish.capabilities {
        if !capabilities.add_capabilities.contains(&name) {
            capabilities.add_capabilities.push(name);
        }
    }
    let count = capabilities.add_capabilities.len();
    capabilities.add_capabilities.retain(|name| Some(&**name) != wish.without_capability);
    ensure!(
        wish.without_capability.is_none() || capabilities.add_capabilities.len() < count,
        "it is not given anyway"
    );
    // A machine that has none to give: from Linux 5.11 on nothing is missing without.
    if !machine::has_sys_resource()? {
        capabilities.add_capabilities.retain(|name| name != "SYS_RESOURCE");
    }
    Ok(())
}
