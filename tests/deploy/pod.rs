//! The permissions of the agent's pod.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    batch::v1::Job,
    core::v1::{Container, PodSpec, Service, Toleration, Volume},
    networking::v1::NetworkPolicy,
};
use serde::de::DeserializeOwned;

use crate::render;

fn of<T: DeserializeOwned>(kind: &str, sets: &[&str]) -> Result<T> {
    Ok(serde_json::from_value(render::only(&render::rendered(sets)?, kind)?.clone())?)
}

fn pod(sets: &[&str]) -> Result<PodSpec> {
    let set: DaemonSet = of("DaemonSet", sets)?;
    set.spec.and_then(|spec| spec.template.spec).context("a pod")
}

fn agent(pod: &PodSpec) -> Result<&Container> {
    let [only] = &pod.containers[..] else { anyhow::bail!("{} containers", pod.containers.len()) };
    ensure!(pod.init_containers.is_none(), "there is an init container");
    Ok(only)
}

fn args(sets: &[&str]) -> Result<Vec<String>> {
    agent(&pod(sets)?)?.args.clone().context("arguments")
}

fn has(args: &[String], prefix: &str) -> bool {
    args.iter().any(|arg| arg.starts_with(prefix))
}

#[test]
fn the_agent_is_not_privileged() -> Result<()> {
    let pod = pod(&[])?;
    let context = agent(&pod)?.security_context.clone().context("a security context")?;
    ensure!(context.privileged == Some(false), "privileged");
    ensure!(context.allow_privilege_escalation == Some(false), "the process could gain privileges");
    ensure!(context.read_only_root_filesystem == Some(true), "its root file system is writable");
    ensure!(context.run_as_user == Some(0), "files of the node are root's");
    let capabilities = context.capabilities.context("capabilities")?;
    ensure!(capabilities.drop == Some(vec!["ALL".to_owned()]), "it keeps the runtime's capabilities");
    let held = ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_RESOURCE"];
    ensure!(capabilities.add == Some(held.map(str::to_owned).to_vec()), "{:?}", capabilities.add);
    let seccomp = context.seccomp_profile.context("a seccomp profile")?;
    ensure!(seccomp.type_ == "RuntimeDefault", "{}", seccomp.type_);
    Ok(())
}

#[test]
fn the_agent_is_privileged_on_request() -> Result<()> {
    let pod = pod(&["privileged=true"])?;
    let context = agent(&pod)?.security_context.clone().context("a security context")?;
    ensure!(context.privileged == Some(true), "not privileged");
    // The API server refuses these fields together with `privileged`.
    ensure!(context.allow_privilege_escalation.is_none() && context.capabilities.is_none(), "{context:?}");
    Ok(())
}

#[test]
fn the_agent_has_no_rights_in_the_cluster() -> Result<()> {
    let pod = pod(&[])?;
    ensure!(pod.automount_service_account_token == Some(false), "the pod has a token");
    let objects = render::rendered(&["podMonitor.enabled=true", "dashboard.enabled=true"])?;
    let rights = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    ensure!(
        !objects.iter().any(|object| rights.iter().any(|kind| object["kind"] == *kind)),
        "the pod has rights"
    );
    Ok(())
}

#[test]
fn only_three_directories_of_the_node_are_writable() -> Result<()> {
    let pod = pod(&["extraHostPaths={/mnt/data}"])?;
    let volumes = pod.volumes.clone().context("volumes")?;
    let host = |volume: &Volume| volume.host_path.as_ref().map(|host| host.path.clone());
    let mounts = agent(&pod)?.volume_mounts.clone().context("mounts")?;
    let mut written = Vec::new();
    for mount in &mounts {
        let volume = volumes.iter().find(|volume| volume.name == mount.name).context("a volume")?;
        let Some(path) = host(volume) else { continue };
        if mount.read_only != Some(true) {
            ensure!(mount.mount_path == path, "{path} is at {}", mount.mount_path);
            written.push(path);
        } else if mount.mount_path != "/sys" {
            ensure!(mount.mount_path == format!("/host{path}"), "{path} is at {}", mount.mount_path);
            // Without it the agent does not see the network namespace of a pod that starts later.
            ensure!(
                mount.mount_propagation.as_deref() == Some("HostToContainer"),
                "{path} gets no new mounts"
            );
        }
    }
    ensure!(written == ["/var/lib/sandprobe", "/run/sandprobe", "/sys/fs/bpf"], "{written:?}");
    ensure!(mounts.iter().any(|mount| mount.mount_path == "/host/mnt/data"), "the added path is not mounted");
    // Each volume is used, and all have different names.
    let mut names: Vec<_> = volumes.iter().map(|volume| volume.name.clone()).collect();
    ensure!(names.iter().all(|name| mounts.iter().any(|mount| mount.name == *name)), "{names:?}");
    names.sort();
    names.dedup();
    ensure!(names.len() == volumes.len(), "two volumes have one name");
    Ok(())
}

/// `kubectl exec POD -- /sandprobe findings` finds the agent with any values.
#[test]
fn commands_in_the_pod_find_the_agent() -> Result<()> {
    let pod = pod(&["runDir=/var/run/probe", "stateDir=/data/probe"])?;
    let agent = agent(&pod)?;
    let variable = |name: &str| {
        let variables = agent.env.clone().unwrap_or_default();
        variables.into_iter().find(|it| it.name == name).and_then(|it| it.value)
    };
    for (name, value) in [
        ("SANDPROBE_SOCKET", "/var/run/probe/sandprobe.sock"),
        ("SANDPROBE_STATE_DIR", "/data/probe"),
        ("SANDPROBE_HOST_ROOT", "/host"),
    ] {
        ensure!(variable(name).as_deref() == Some(value), "{name} is {:?}", variable(name));
    }
    // A flag would be valid only for the agent itself.
    let arguments = agent.args.clone().unwrap_or_default();
    for flag in ["--socket", "--state-dir", "--host-root"] {
        ensure!(!arguments.iter().any(|it| it.starts_with(flag)), "{flag} is a flag: {arguments:?}");
    }
    let notes = std::fs::read_to_string(render::chart().join("templates/NOTES.txt"))?;
    ensure!(!notes.contains("--host-root") && !notes.contains("--socket"), "{notes}");
    Ok(())
}

#[test]
fn the_agent_runs_on_every_node_and_is_not_evicted() -> Result<()> {
    let pod = pod(&[])?;
    ensure!(pod.host_pid == Some(true), "the hooks report the machine's pids");
    ensure!(pod.host_network == Some(true), "the agent would depend on the network that it watches");
    ensure!(
        pod.priority_class_name.as_deref() == Some("system-node-critical"),
        "{:?}",
        pod.priority_class_name
    );
    let all = pod.tolerations.clone().unwrap_or_default().iter().any(|toleration| {
        toleration.operator.as_deref() == Some("Exists")
            && toleration.key.is_none()
            && toleration.effect.is_none()
    });
    ensure!(all, "some taints keep the agent away");
    let agent = agent(&pod)?;
    let limits = agent.resources.clone().and_then(|resources| resources.limits).context("limits")?;
    ensure!(limits["memory"].0 == "192Mi" && !limits.contains_key("cpu"), "{limits:?}");
    let node = agent.env.clone().unwrap_or_default();
    let from = node.iter().find(|it| it.name == "NODE_NAME").and_then(|it| it.value_from.clone());
    let field = from.and_then(|from| from.field_ref).context("its node's name")?;
    ensure!(field.field_path == "spec.nodeName", "{}", field.field_path);
    Ok(())
}

#[test]
fn the_probes_use_the_address_of_the_server() -> Result<()> {
    for (mode, scheme) in [("tls", "HTTPS"), ("local", "HTTP"), ("insecure", "HTTP")] {
        let mode = format!("server.mode={mode}");
        for host_network in [true, false] {
            let network = format!("hostNetwork={host_network}");
            let pod = pod(&[&mode, &network, "server.port=9999"])?;
            let agent = agent(&pod)?;
            let probes = [
                (&agent.startup_probe, "/healthz"),
                (&agent.liveness_probe, "/healthz"),
                (&agent.readiness_probe, "/readyz"),
            ];
            for (probe, path) in probes {
                let get = probe.clone().and_then(|probe| probe.http_get).context("a probe by HTTP")?;
                ensure!(get.path.as_deref() == Some(path), "{:?}", get.path);
                ensure!(get.scheme.as_deref() == Some(scheme), "{:?} with {mode}", get.scheme);
                ensure!(get.host.is_some() == host_network, "{:?} with {network}", get.host);
                ensure!(serde_json::to_value(get.port)? == 9999, "the port differs");
            }
        }
    }
    Ok(())
}

#[test]
fn a_server_beyond_the_node_needs_a_token_or_the_insecure_flag() -> Result<()> {
    let tls = args(&[])?;
    ensure!(
        has(&tls, "--listen=0.0.0.0:9477") && has(&tls, "--token-file=") && has(&tls, "--tls-cert="),
        "{tls:?}"
    );
    ensure!(!has(&tls, "--insecure-listen"), "{tls:?}");
    let local = args(&["server.mode=local"])?;
    ensure!(has(&local, "--listen=127.0.0.1:9477"), "{local:?}");
    ensure!(!has(&local, "--tls") && !has(&local, "--token-file") && !has(&local, "--insecure"), "{local:?}");
    let insecure = args(&["server.mode=insecure", "server.address=[::]"])?;
    ensure!(has(&insecure, "--listen=[::]:9477") && has(&insecure, "--insecure-listen"), "{insecure:?}");
    Ok(())
}

#[test]
fn only_root_reads_the_secret_and_an_existing_one_is_used() -> Result<()> {
    let named = render::rendered(&["server.existingSecret=own"])?;
    ensure!(render::only(&named, "Secret").is_err(), "a second Secret is made");
    let pod = pod(&["server.existingSecret=own"])?;
    let secret =
        pod.volumes.unwrap_or_default().into_iter().find_map(|volume| volume.secret).context("a secret")?;
    ensure!(secret.secret_name.as_deref() == Some("own") && secret.default_mode == Some(0o400), "{secret:?}");
    let made = render::rendered(&[])?;
    let data = &render::only(&made, "Secret")?["data"];
    for key in ["ca.crt", "tls.crt", "tls.key", "token"] {
        ensure!(data[key].as_str().is_some_and(|text| text.len() > 40), "no {key}");
    }
    Ok(())
}

#[test]
fn in_a_pod_network_only_monitoring_reaches_the_agent() -> Result<()> {
    let policy: NetworkPolicy = of("NetworkPolicy", &["hostNetwork=false"])?;
    let spec = policy.spec.context("a policy")?;
    ensure!(
        spec.policy_types == Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        "{:?}",
        spec.policy_types
    );
    ensure!(spec.egress.is_none(), "the agent may open connections");
    let telling: NetworkPolicy = of("NetworkPolicy", &["hostNetwork=false", "kubernetes.condition=true"])?;
    let egress = telling.spec.and_then(|spec| spec.egress).unwrap_or_default();
    ensure!(
        egress.len() == 1 && egress[0].ports.as_ref().is_some_and(|ports| ports.len() == 4),
        "{egress:?}"
    );
    let [ingress] = &spec.ingress.unwrap_or_default()[..] else {
        anyhow::bail!("not exactly one ingress rule")
    };
    let from = ingress.from.clone().unwrap_or_default();
    ensure!(from.len() == 1 && from[0].namespace_selector.is_some(), "{from:?}");
    ensure!(ingress.ports.as_ref().is_some_and(|ports| ports.len() == 1), "{:?}", ingress.ports);
    // For a host-network pod the policy would have no effect.
    ensure!(render::only(&render::rendered(&[])?, "NetworkPolicy").is_err(), "a policy that does nothing");
    Ok(())
}

#[test]
fn the_service_has_no_address() -> Result<()> {
    let service: Service = of("Service", &[])?;
    let spec = service.spec.context("a service")?;
    ensure!(spec.cluster_ip.as_deref() == Some("None"), "{:?}", spec.cluster_ip);
    Ok(())
}

#[test]
fn the_apparmor_field_needs_kubernetes_1_30() -> Result<()> {
    let of = |kubernetes| -> Result<_> {
        let objects = render::objects(&render::template_for(kubernetes, &[])?)?;
        let set: DaemonSet = serde_json::from_value(render::only(&objects, "DaemonSet")?.clone())?;
        let pod = set.spec.and_then(|spec| spec.template.spec).context("a pod")?;
        Ok(agent(&pod)?.security_context.clone().and_then(|context| context.app_armor_profile))
    };
    ensure!(of("1.29.4")?.is_none(), "1.29 refuses it");
    ensure!(of("1.30.0")?.is_some_and(|profile| profile.type_ == "Unconfined"), "1.30 confines it");
    Ok(())
}

#[test]
fn hooks_are_pinned_on_the_node_unless_asked_otherwise() -> Result<()> {
    let is_mounted = |pod: &PodSpec| -> Result<bool> {
        let mounts = agent(pod)?.volume_mounts.clone().unwrap_or_default();
        Ok(mounts.iter().any(|mount| mount.mount_path == "/sys/fs/bpf" && mount.read_only != Some(true)))
    };
    ensure!(is_mounted(&pod(&[])?)? && !has(&args(&[])?, "--no-pin"), "not pinned");
    let off = ["pinHooks=false"];
    ensure!(!is_mounted(&pod(&off)?)? && has(&args(&off)?, "--no-pin"), "pinned");
    Ok(())
}

/// An agent from before `pinHooks=false` has left its hooks.
#[test]
fn an_uninstall_removes_hooks_also_if_they_are_pinned_no_more() -> Result<()> {
    ensure!(render::at_uninstall(&["pinHooks=false"])? == render::at_uninstall(&[])?);
    Ok(())
}

#[test]
fn a_log_file_is_in_a_directory_of_the_node() -> Result<()> {
    let mounts = |sets: &[&str]| -> Result<Vec<(String, Option<bool>)>> {
        let mounts = agent(&pod(sets)?)?.volume_mounts.clone().unwrap_or_default();
        Ok(mounts.into_iter().map(|mount| (mount.mount_path, mount.read_only)).collect())
    };
    let set = ["logFile.path=/var/log/probe/events.json", "logFile.keep=2"];
    let made = ("/var/log/probe".to_owned(), None);
    ensure!(mounts(&set)?.contains(&made) && !mounts(&[])?.contains(&made), "{:?}", mounts(&set)?);
    let args = (args(&set)?, args(&[])?);
    for arg in ["--log-file=/var/log/probe/events.json", "--log-size=10MiB", "--log-keep=2"] {
        ensure!(has(&args.0, arg) && !has(&args.1, "--log-"), "{args:?}");
    }
    let volumes = pod(&set)?.volumes.unwrap_or_default();
    let of_node = volumes.iter().find(|volume| volume.name == "log").and_then(|it| it.host_path.clone());
    let of_node = of_node.context("a directory of the node")?;
    ensure!(of_node.path == "/var/log/probe" && of_node.type_.as_deref() == Some("DirectoryOrCreate"));
    Ok(())
}

#[test]
fn a_receiver_is_found_by_its_name_and_shown_what_it_wants() -> Result<()> {
    let set = [
        "otlp.endpoint=https://collector.monitoring:4317",
        "otlp.protocol=grpc",
        "otlp.headersSecret=credentials",
        "otlp.caConfigMap=authorities",
    ];
    let (with, without) = (args(&set)?, args(&[])?);
    for arg in [
        "--otlp=https://collector.monitoring:4317",
        "--otlp-protocol=grpc",
        "--otlp-signals=traces,logs",
        "--otlp-header-file=/etc/sandprobe/otlp-headers/headers",
        "--otlp-ca=/etc/sandprobe/otlp-ca/ca.crt",
    ] {
        ensure!(has(&with, arg) && !has(&without, "--otlp"), "{with:?} {without:?}");
    }
    let made = pod(&set)?;
    let mounts = agent(&made)?.volume_mounts.clone().unwrap_or_default();
    for (name, path) in
        [("otlp-headers", "/etc/sandprobe/otlp-headers"), ("otlp-ca", "/etc/sandprobe/otlp-ca")]
    {
        let mount = mounts.iter().find(|mount| mount.name == name).context(name)?;
        ensure!(mount.mount_path == path && mount.read_only == Some(true), "{mount:?}");
    }
    let volumes = made.volumes.clone().unwrap_or_default();
    let volume = |name: &str| volumes.iter().find(|volume| volume.name == name).context("a volume");
    let secret = volume("otlp-headers")?.secret.clone().and_then(|it| it.secret_name);
    ensure!(secret.as_deref() == Some("credentials"), "{secret:?}");
    let map = volume("otlp-ca")?.config_map.clone().map(|it| it.name);
    ensure!(map.as_deref() == Some("authorities"), "{map:?}");
    // A pod on the node's network does not find Services by its usual policy.
    for (sets, policy) in [
        (&set[..1], "ClusterFirstWithHostNet"),
        (&[set[0], "hostNetwork=false"][..], "ClusterFirst"),
        (&[][..], "Default"),
    ] {
        let found = pod(sets)?.dns_policy;
        ensure!(found.as_deref() == Some(policy), "{sets:?}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_receiver_can_be_reached_from_a_pod_of_its_own() -> Result<()> {
    let ports = |endpoint: &str| -> Result<Vec<String>> {
        let set = format!("otlp.endpoint={endpoint}");
        let policy: NetworkPolicy = of("NetworkPolicy", &["hostNetwork=false", &set])?;
        let rules = policy.spec.and_then(|spec| spec.egress).unwrap_or_default();
        let ports = rules.into_iter().flat_map(|rule| rule.ports.unwrap_or_default());
        Ok(ports.map(|port| format!("{:?}", port.port)).collect())
    };
    ensure!(ports("")?.is_empty(), "{:?}", ports(""));
    for (endpoint, port) in [
        ("http://collector:4318/x", "4318"),
        ("https://collector", "443"),
        ("http://[fd00::1]", "80"),
        ("http://$(NODE_IP):4317", "4317"),
    ] {
        let all = ports(endpoint)?;
        ensure!(all.len() == 3 && all[0].contains(&format!("({port})")), "{endpoint}: {all:?}");
    }
    Ok(())
}

/// On each node that has an agent, a pod removes what the agent has left.
#[test]
fn an_uninstall_removes_the_hooks_of_each_node() -> Result<()> {
    let sets = [
        "detachSeconds=90",
        "nodeSelector.disk=ssd",
        "tolerations[0].operator=Exists,tolerations[1].key=own",
    ];
    let objects = render::at_uninstall(&sets)?;
    let set: DaemonSet = serde_json::from_value(render::only(&objects, "DaemonSet")?.clone())?;
    let job: Job = serde_json::from_value(render::only(&objects, "Job")?.clone())?;
    let of_nodes = set.spec.and_then(|spec| spec.template.spec).context("a pod of each node")?;
    let of_job = job.spec.and_then(|spec| spec.template.spec).context("a pod of the job")?;
    let agents = pod(&sets)?;
    ensure!(of_nodes.tolerations == agents.tolerations && of_nodes.node_selector == agents.node_selector);
    // Helm waits for the job. A node that is not there would never run it.
    let may_be_dead =
        |it: &Toleration| it.key.as_deref().is_none_or(|key| key.starts_with("node.kubernetes.io/"));
    let tolerations = of_job.tolerations.clone().unwrap_or_default();
    ensure!(tolerations.len() == 2 && !tolerations.iter().any(may_be_dead), "{tolerations:?}");
    for (pod, lingers) in [(&of_nodes, "--linger=24h"), (&of_job, "--linger=90s")] {
        let container = agent(pod)?;
        let args = container.args.clone().context("arguments")?;
        ensure!(args == ["detach", "--wait", lingers], "{args:?}");
        ensure!(container.image == agent(&agents)?.image, "{:?}", container.image);
        let context = container.security_context.clone().context("a security context")?;
        ensure!(context.capabilities.is_some_and(|it| it.add.is_none()), "it needs no capability");
    }
    Ok(())
}
