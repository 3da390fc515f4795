//! The agent's pod from `deploy/manifests`, and the one of an uninstall. Each is translated into the
//! kubelet's CRI configuration and probes, and into the Prometheus operator's scrape configuration. So the
//! tests run what is deployed.
//!
//! **Invariant:** a field that is not translated is an error.

mod around;
mod probe;
mod scrape;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cri::message::{
        container::{Mount, MountPropagation},
        security::{Capability, Int64Value, LinuxContainerSecurityContext, ProfileType, SecurityProfile},
    },
    kubelet::{Container, Pod, Qos},
};
pub use around::{TOKEN, import, secret};
pub use probe::Probe;
pub use scrape::scrape;

const MANIFEST: &str = include_str!("../../deploy/manifests/sandprobe.yaml");
/// The manifest for use after an uninstall.
const DETACH: &str = include_str!("../../deploy/manifests/detach/detach.yaml");
/// Fields for the API server, the scheduler and the kubelet. They do not reach the runtime.
const ELSEWHERE: [&str; 11] = [
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "hostNetwork",
    "hostPID",
    "nodeSelector",
    "priorityClassName",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
];
const OF_CONTAINER: [&str; 12] = [
    "args",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "volumeMounts",
];

/// A cluster's surroundings of a pod.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub node: String,
    /// The directory with the files of the only Secret.
    pub secret: PathBuf,
    /// A directory of this machine for the pod's writable host paths, if the node's own must not be used.
    pub own: Option<PathBuf>,
}

/// The agent's pod for one node.
#[derive(Clone, Debug)]
pub struct Agent {
    pub pod: Pod,
    pub startup: Probe,
    pub liveness: Probe,
    pub readiness: Probe,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// Returns the pod of the DaemonSet for this node.
pub fn agent(cluster: &Cluster) -> Result<Agent> {
    let spec = daemon_set()?["spec"]["template"]["spec"].clone();
    let pod = pod(&spec, cluster, ("sandprobe-x7k2p", "5d1cb95b-0000-4000-8000-00000000a6e7"))?;
    let container = &spec["containers"][0];
    Ok(Agent {
        pod,
        startup: Probe::read(&container["startupProbe"])?,
        liveness: Probe::read(&container["livenessProbe"])?,
        readiness: Probe::read(&container["readinessProbe"])?,
        grace: seconds(&spec["terminationGracePeriodSeconds"])?,
    })
}

/// Returns the pod that removes the hooks of this node after an uninstall.
pub fn detacher(cluster: &Cluster) -> Result<Pod> {
    let spec = object(DETACH, "DaemonSet")?["spec"]["template"]["spec"].clone();
    pod(&spec, cluster, ("sandprobe-detach-m4c9z", "5d1cb95b-0000-4000-8000-00000000de7a"))
}

/// Returns the pod of a DaemonSet, with its name and UID.
fn pod(spec: &Value, cluster: &Cluster, (name, uid): (&str, &str)) -> Result<Pod> {
    only(spec, &[&ELSEWHERE[..], &["volumes"]].concat())?;
    let [container] = &array(&spec["containers"])?[..] else {
        bail!("the pod does not have exactly one container")
    };
    only(container, &OF_CONTAINER)?;
    // The kubelet adds it to every container, with and without service links.
    let mut environment = vec![("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned())];
    for variable in container["env"].as_array().into_iter().flatten() {
        only(variable, &["name", "value", "valueFrom"])?;
        let value = if variable["valueFrom"].is_null() {
            text(&variable["value"])?
        } else {
            let field = text(&variable["valueFrom"]["fieldRef"]["fieldPath"])?;
            ensure!(field == "spec.nodeName", "the field {field} is not supported here");
            cluster.node.clone()
        };
        environment.push((text(&variable["name"])?, value));
    }
    let resources = &container["resources"];
    only(&resources["limits"], &["memory"])?;
    only(&resources["requests"], &["cpu", "memory"])?;
    let container = Container {
        arguments: texts(&container["args"])?,
        environment,
        mounts: mounts(&container["volumeMounts"], &spec["volumes"], cluster)?,
        security: security(&container["securityContext"])?,
        cpu_request: Some(thousandths(&text(&resources["requests"]["cpu"])?)?),
        memory_limit: Some(bytes(&text(&resources["limits"]["memory"])?)?),
        ..Container::new(&text(&container["name"])?, &text(&container["image"])?, &[])
    };
    let pod = Pod {
        namespace: "sandprobe".to_owned(),
        qos: Qos::Burstable,
        host_network: flag(&spec["hostNetwork"])?,
        host_pid: flag(&spec["hostPID"])?,
        is_critical: spec["priorityClassName"] == "system-node-critical",
        ..Pod::new(name, uid)
    };
    Ok(pod.with(container))
}

fn daemon_set() -> Result<Value> {
    object(MANIFEST, "DaemonSet")
}

/// Returns the first object of a kind.
fn object(manifest: &str, kind: &str) -> Result<Value> {
    for document in serde_yaml_ng::Deserializer::from_str(manifest) {
        let object = Value::deserialize(document)?;
        if object["kind"] == kind {
            return Ok(object);
        }
    }
    bail!("the manifests have no {kind}")
}

fn mounts(mounts: &Value, volumes: &Value, cluster: &Cluster) -> Result<Vec<Mount>> {
    let mount = |mount: &Value| {
        only(mount, &["mountPath", "mountPropagation", "name", "readOnly"])?;
        let volume = array(volumes)?.iter().find(|volume| volume["name"] == mount["name"]);
        let propagation = match mount["mountPropagation"].as_str() {
            None => MountPropagation::Private,
            Some("HostToContainer") => MountPropagation::HostToContainer,
            Some(other) => bail!("the mount propagation {other} is not supported here"),
        };
        Ok(Mount {
            container_path: text(&mount["mountPath"])?,
            host_path: host_path(volume.context("a mount without its volume")?, cluster)?
                .display()
                .to_string(),
            readonly: mount["readOnly"] == true,
            propagation: propagation.into(),
        })
    };
    array(mounts)?.iter().map(mount).collect()
}

/// Returns the path of a volume on the node. It makes and checks host paths as the kubelet does.
fn host_path(volume: &Value, cluster: &Cluster) -> Result<PathBuf> {
    if volume["secret"].is_object() {
        return Ok(cluster.secret.clone());
    }
    let host = &volume["hostPath"];
    only(host, &["path", "type"])?;
    let path = PathBuf::from(text(&host["path"])?);
    let path = match (&cluster.own, host["type"].as_str()) {
        (Some(own), Some("DirectoryOrCreate")) => own.join(path.strip_prefix("/")?),
        _ => path,
    };
    match host["type"].as_str() {
        Some("Directory") => ensure!(path.is_dir(), "{} is not a directory of the node", path.display()),
        Some("DirectoryOrCreate") => {
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        other => bail!("a host path of type {other:?} is not supported here"),
    }
    Ok(path)
}

fn security(context: &Value) -> Result<LinuxContainerSecurityContext> {
    only(
        context,
        &[
            "allowPrivilegeEscalation",
            "appArmorProfile",
            "capabilities",
            "privileged",
            "readOnlyRootFilesystem",
            "runAsGroup",
            "runAsUser",
            "seccompProfile",
        ],
    )?;
    let number = |name: &str| context[name].as_i64().map(|value| Int64Value { value });
    let profile = |name: &str| match context[name]["type"].as_str() {
        Some("RuntimeDefault") => Ok(SecurityProfile { profile_type: ProfileType::RuntimeDefault.into() }),
        Some("Unconfined") => Ok(SecurityProfile { profile_type: ProfileType::Unconfined.into() }),
        other => bail!("a {name} of type {other:?} is not supported here"),
    };
    Ok(LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: match &context["capabilities"]["add"] {
                Value::Null => Vec::new(),
                names => texts(names)?,
            },
            drop_capabilities: texts(&context["capabilities"]["drop"])?,
        }),
        privileged: context["privileged"] == true,
        namespace_options: None,
        run_as_user: number("runAsUser"),
        run_as_group: number("runAsGroup"),
        readonly_rootfs: flag(&context["readOnlyRootFilesystem"])?,
        no_new_privs: !flag(&context["allowPrivilegeEscalation"])?,
        seccomp: Some(profile("seccompProfile")?),
        apparmor: if context["appArmorProfile"].is_null() { None } else { Some(profile("appArmorProfile")?) },
    })
}

fn only(object: &Value, known: &[&str]) -> Result<()> {
    let object = object.as_object().context("an object")?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => bail!("{key} is in the manifest and not translated"),
        None => Ok(()),
    }
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("a list")
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("a text")
}

fn texts(value: &Value) -> Result<Vec<String>> {
    array(value)?.iter().map(text).collect()
}

fn flag(value: &Value) -> Result<bool> {
    value.as_bool().context("true or false")
}

fn seconds(value: &Value) -> Result<Duration> {
    value.as_u64().map(Duration::from_secs).context("seconds")
}

/// Parses a quantity like `20m`.
fn thousandths(quantity: &str) -> Result<i64> {
    Ok(quantity.strip_suffix('m').context("thousandths")?.parse()?)
}

/// Parses a quantity like `128Mi`.
fn bytes(quantity: &str) -> Result<i64> {
    let mebibytes: i64 = quantity.strip_suffix("Mi").context("mebibytes")?.parse()?;
    Ok(mebibytes << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_security_context_and_mounts_are_translated() -> Result<()> {
        let parts = |path: &str| Mount {
            container_path: format!("/host{path}"),
            host_path: path.to_owned(),
            readonly: true,
            propagation: MountPropagation::HostToContainer.into(),
        };
        let context = &daemon_set()?["spec"]["template"]["spec"]["containers"][0]["securityContext"];
        let security = security(context)?;
        assert!(!security.privileged && security.readonly_rootfs && security.no_new_privs);
        let capabilities = security.capabilities.context("capabilities")?;
        assert_eq!(capabilities.drop_capabilities, ["ALL"]);
        assert!(capabilities.add_capabilities.iter().any(|capability| capability == "BPF"));
        let spec = &daemon_set()?["spec"]["template"]["spec"];
        let proc: Vec<Value> = array(&spec["containers"][0]["volumeMounts"])?
            .iter()
            .filter(|mount| mount["name"] == "host-proc")
            .cloned()
            .collect();
        let mounts = mounts(&Value::Array(proc), &spec["volumes"], &Cluster::default())?;
        assert_eq!(mounts, [parts("/proc")]);
        Ok(())
    }

    #[test]
    fn an_unknown_field_is_an_error() {
        assert!(only(&serde_json::json!({ "args": [], "lifecycle": {} }), &OF_CONTAINER).is_err());
    }
}
