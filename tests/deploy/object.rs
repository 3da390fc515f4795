//! Each object is converted to its Kubernetes type and back. A misspelt, misplaced or mistyped field would be
//! lost on the way.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    operator::{PodMonitor, PrometheusRule, ServiceMonitor},
    render,
};

/// Together these choices render every object that the chart can make.
const CHOICES: [&[&str]; 9] = [
    &[],
    &["server.existingSecret=own"],
    &["server.mode=local", "service.enabled=false", "serviceAccount.create=false", "appArmorProfile=null"],
    &["server.mode=insecure", "hostNetwork=false", "server.metricLabels={namespace,workload}"],
    &["kubernetes.events=true", "kubernetes.condition=true"],
    &["kubernetes.ipam=calico"],
    &["otlp.endpoint=http://a:4317", "otlp.headersSecret=own", "otlp.caConfigMap=ca", "hostNetwork=false"],
    &["podMonitor.enabled=true", "serviceMonitor.enabled=true", "podMonitor.labels.release=stack"],
    &[
        "privileged=true",
        "config=leak_grace = \"5m\"",
        "extraHostPaths={/mnt/containerd_data}",
        "extraEnv[0].name=A",
        "extraEnv[0].value=b",
        "seLinuxOptions.type=spc_t",
        "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ],
];

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value> {
    Ok(serde_json::to_value(serde_json::from_value::<T>(object.clone())?)?)
}

fn typed(object: &Value) -> Result<Value> {
    let kind =
        format!("{} {}", object["apiVersion"].as_str().unwrap_or(""), object["kind"].as_str().unwrap_or(""));
    match kind.as_str() {
        "apps/v1 DaemonSet" => round_trip::<DaemonSet>(object),
        "v1 ConfigMap" => round_trip::<ConfigMap>(object),
        "v1 Namespace" => round_trip::<Namespace>(object),
        "v1 Secret" => round_trip::<Secret>(object),
        "v1 Service" => round_trip::<Service>(object),
        "v1 ServiceAccount" => round_trip::<ServiceAccount>(object),
        "rbac.authorization.k8s.io/v1 ClusterRole" => round_trip::<ClusterRole>(object),
        "rbac.authorization.k8s.io/v1 ClusterRoleBinding" => round_trip::<ClusterRoleBinding>(object),
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy" => {
            round_trip::<ValidatingAdmissionPolicy>(object)
        }
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding" => {
            round_trip::<ValidatingAdmissionPolicyBinding>(object)
        }
        "networking.k8s.io/v1 NetworkPolicy" => round_trip::<NetworkPolicy>(object),
        "monitoring.coreos.com/v1 PodMonitor" => round_trip::<PodMonitor>(object),
        "monitoring.coreos.com/v1 ServiceMonitor" => round_trip::<ServiceMonitor>(object),
        "monitoring.coreos.com/v1 PrometheusRule" => round_trip::<PrometheusRule>(object),
        other => bail!("there is no type for {other:?}"),
    }
}

fn check(objects: &[Value]) -> Result<()> {
    for object in objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let back = typed(object).with_context(|| name.clone())?;
        ensure!(back == *object, "{name} is\n{object:#}\nand its type keeps only\n{back:#}");
    }
    Ok(())
}

#[test]
fn every_object_fits_its_type() -> Result<()> {
    for sets in CHOICES {
        let objects = render::rendered(sets)?;
        check(&objects).with_context(|| format!("with {sets:?}"))?;
    }
    Ok(())
}

#[test]
fn every_kustomize_object_fits_its_type() -> Result<()> {
    for folder in ["deploy/manifests", "deploy/manifests/monitoring", "deploy/manifests/detach"] {
        check(&render::objects(&render::kustomize(folder)?)?).context(folder)?;
    }
    Ok(())
}

/// Checks the check itself: a field in the wrong place is lost on the way, and found.
#[test]
fn a_misplaced_field_is_found() -> Result<()> {
    let mut objects = render::rendered(&[])?;
    for object in &mut objects {
        if object["kind"] == "DaemonSet" {
            object["spec"]["template"]["spec"]["readOnlyRootFilesystem"] = true.into();
        }
    }
    ensure!(check(&objects).is_err(), "a field that no pod has was accepted");
    Ok(())
}
