//! Installs such a node on the disk, and starts it for the first time.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{AGENT_POD, LATER, MANIFESTS, PODS, SUBNET, SYSTEM, driver::SOCKET, write};
use crate::{
    command,
    image::{Image, WITNESS},
    keyed::{Faults, Settings},
    kubelet::{Container, Pod},
    manifest::{self, Cluster},
    program,
};

/// The number of service pods.
const SERVICES: usize = 5;
/// The port at which each service listens in its own network, and its delay after the start in ms.
const LISTENS: &[&str] = &["8080", "200"];
/// The time in ms after its start at which the network's own pod writes the subnet's file.
const SUBNET_TAKES_MS: &str = "3000";

const NODE: &str = "edge-1";
/// The type of the network's plugin, by which a runtime calls it.
const PLUGIN: &str = "flannel";
const LIBRARY: &str = "/usr/local/lib/edge";
const STORE: &str = "/var/lib/keyed/addresses";
/// The directory of the Secret for the agent as a pod.
const SECRET: &str = "/etc/edge/secret";
const UNITS: &str = "/etc/systemd/system";
/// The target of the tests' VMs whose units start at boot.
const WANTS: &str = "vm.target.wants";
const AGENT: &str = "sandprobe.service";
const KUBELET: &str = "kubelet.service";

/// Prepares the runtime's needs as an ordinary node's boot does: modules, plugins, a setting. In the tests'
/// VMs each boot needs this again.
const PREPARE: &str = "\
#!/bin/sh
until mountpoint -q /lib/modules; do sleep 0.1; done
modprobe -qa overlay veth || true
ln -sf /usr/local/lib/edge/flannel /usr/lib/cni/flannel
sed -i 's/SystemdCgroup = .*/SystemdCgroup = true/' /etc/containerd/config-v[23].toml
";

const PREPARE_UNIT: &str = "\
[Unit]
DefaultDependencies=no
Before=containerd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/edge/prepare
";

const KUBELET_UNIT: &str = "\
[Unit]
DefaultDependencies=no
Wants=containerd.service
After=containerd.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/local/bin/kubelet
StandardOutput=null
StandardError=append:/var/log/kubelet.log
";

/// The agent runs until systemd's last step, so that it sees the shutdown.
const AGENT_UNIT: &str = "\
[Unit]
DefaultDependencies=no
Wants=sys-kernel-tracing.mount
After=sys-kernel-tracing.mount
Before=containerd.service kubelet.service

[Service]
ExecStart=/usr/local/bin/sandprobe run -o json --node edge-1 --ipam-store /var/lib/keyed/addresses --record /var/lib/recordings/%b.jsonl
StandardOutput=null
StandardError=append:/var/log/sandprobe.log
";

/// Installs everything and starts it, the agent first.
pub fn install() -> Result<()> {
    for (name, to) in [
        ("sandprobe", "/usr/local/bin/sandprobe"),
        ("kubelet", "/usr/local/bin/kubelet"),
        ("keyed", "/usr/local/lib/edge/flannel"),
    ] {
        write(Path::new(to), &fs::read(program::path(name)?)?)?;
        make_executable(to)?;
    }
    write(&Path::new(LIBRARY).join("prepare"), PREPARE.as_bytes())?;
    make_executable(&format!("{LIBRARY}/prepare"))?;
    for folder in [STORE, "/var/lib/recordings"] {
        fs::create_dir_all(folder).with_context(|| format!("make {folder}"))?;
    }
    let mut settings = Settings::new("0.4.0", Path::new(STORE), "10.99.0.0/16", Faults::default());
    settings.subnet_file = Some(PathBuf::from(SUBNET));
    let mut plugin = json!(settings);
    plugin["type"] = json!(PLUGIN);
    let network = json!({ "cniVersion": "0.4.0", "name": "cbr0", "plugins": [plugin] });
    write(Path::new("/etc/cni/net.d/00-flannel.conflist"), network.to_string().as_bytes())?;
    let manifests =
        ["etcd", "apiserver"].map(|name| Pod { host_network: true, ..witness(SYSTEM, name, "", &[]) });
    for pod in manifests {
        write(&Path::new(MANIFESTS).join(&pod.name), &serde_json::to_vec(&[&pod])?)?;
    }
    let mut all: Vec<Pod> =
        (0..SERVICES).map(|n| witness("default", &format!("web-{n}"), &uid(n), LISTENS)).collect();
    // Some pods fail before the network pod, some between its start and its first output, and none after.
    all.insert(1, network_pod());
    write(Path::new(PODS), &serde_json::to_vec(&all)?)?;

    for (name, text) in [("edge.service", PREPARE_UNIT), (KUBELET, KUBELET_UNIT), (AGENT, AGENT_UNIT)] {
        write(&Path::new(UNITS).join(name), text.as_bytes())?;
    }
    for name in ["edge.service", "containerd.service", KUBELET, AGENT] {
        enable(name)?;
    }
    command::run("systemctl", &["daemon-reload"])?;
    command::run("systemctl", &["start", AGENT])?;
    command::run("systemctl", &["start", "edge.service"])?;
    command::run("start-containerd", &["systemd"])?;
    Image::program(WITNESS, &program::path("witness")?)?.import(Path::new(SOCKET))?;
    command::run("systemctl", &["start", KUBELET])
}

/// From the next boot on the agent is not a service, but a pod that starts after all others run.
pub fn move_agent_into_a_pod() -> Result<()> {
    manifest::import(Path::new(SOCKET))?;
    write(Path::new(LATER), &serde_json::to_vec(&[agent_pod()?])?)?;
    disable(AGENT)
}

/// From the next boot on no kubelet starts pods.
pub fn disable_kubelet() -> Result<()> {
    disable(KUBELET)
}

fn uid(n: usize) -> String {
    format!("5d1cb95b-0000-4000-8000-{n:012}")
}

/// Returns a pod whose program prints when it began.
fn witness(namespace: &str, name: &str, uid: &str, words: &[&str]) -> Pod {
    let command: Vec<String> = ["/bin/witness"].iter().chain(words).map(|word| (*word).to_owned()).collect();
    let pod = Pod { namespace: namespace.to_owned(), ..Pod::new(name, uid) };
    pod.with(Container::new("main", WITNESS, &command))
}

/// Returns the pod that gives the network its subnet.
fn network_pod() -> Pod {
    let pod = witness(SYSTEM, "flannel", &uid(100), &[SUBNET, SUBNET_TAKES_MS]);
    let containers = pod.containers.into_iter().map(|container| container.with_directory("/run/flannel"));
    Pod { host_network: true, containers: containers.collect(), ..pod }
}

/// Returns the pod of the DaemonSet, but in the system namespace, so that it is not one of the service pods.
fn agent_pod() -> Result<Pod> {
    let cluster = Cluster { node: NODE.to_owned(), secret: PathBuf::from(SECRET), own: None };
    manifest::secret(&cluster.secret)?;
    let mut pod = manifest::agent(&cluster)?.pod;
    let agent = pod.containers.first_mut().context("the agent")?;
    agent.arguments.push(format!("--ipam-store={STORE}"));
    Ok(Pod { namespace: SYSTEM.to_owned(), name: AGENT_POD.to_owned(), ..pod })
}

fn disable(unit: &str) -> Result<()> {
    let link = Path::new(UNITS).join(WANTS).join(unit);
    fs::remove_file(&link).with_context(|| format!("disable {unit}"))
}

fn enable(unit: &str) -> Result<()> {
    let wants = Path::new(UNITS).join(WANTS);
    fs::create_dir_all(&wants).with_context(|| format!("make {}", wants.display()))?;
    symlink(Path::new(UNITS).join(unit), wants.join(unit)).with_context(|| format!("enable {unit}"))
}

fn make_executable(path: &str) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("set the mode of {path}"))
}
