//! Each object as its type has it: what comes back from the type is what went in, so that no field is misspelt,
//! misplaced or of the wrong kind.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    operator::{PodMonitor, PrometheusRule, ServiceMonitor},
    render,
};

/// Every object that the chart can make is made by one of these.
const CHOICES: [&[&str]; 6] = [
    &[],
    &["server.existingSecret=own"],
    &["server.mode=local", "service.enabled=false", "serviceAccount.create=false", "appArmorProfile=null"],
    &["server.mode=insecure", "hostNetwork=false", "server.metricLabels={namespace,workload}"],
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

fn round<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value> {
    Ok(serde_json::to_value(serde_json::from_value::<T>(object.clone())?)?)
}

fn typed(object: &Value) -> Result<Value> {
    let kind =
        format!("{} {}", object["apiVersion"].as_str().unwrap_or(""), object["kind"].as_str().unwrap_or(""));
    match kind.as_str() {
        "apps/v1 DaemonSet" => round::<DaemonSet>(object),
        "v1 ConfigMap" => round::<ConfigMap>(object),
        "v1 Namespace" => round::<Namespace>(object),
        "v1 Secret" => round::<Secret>(object),
        "v1 Service" => round::<Service>(object),
        "v1 ServiceAccount" => round::<ServiceAccount>(object),
        "networking.k8s.io/v1 NetworkPolicy" => round::<NetworkPolicy>(object),
        "monitoring.coreos.com/v1 PodMonitor" => round::<PodMonitor>(object),
        "monitoring.coreos.com/v1 ServiceMonitor" => round::<ServiceMonitor>(object),
        "monitoring.coreos.com/v1 PrometheusRule" => round::<PrometheusRule>(object),
        other => bail!("no type is known for {other:?}"),
    }
}

fn check(objects: &[Value]) -> Result<()> {
    for object in objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let back = typed(object).with_context(|| name.clone())?;
        ensure!(back == *object, "{name} is\n{object:#}\nof which its type keeps\n{back:#}");
    }
    Ok(())
}

#[test]
fn every_object_is_of_its_type() -> Result<()> {
    for sets in CHOICES {
        let objects = render::rendered(sets)?;
        check(&objects).with_context(|| format!("with {sets:?}"))?;
    }
    Ok(())
}

#[test]
fn what_kustomize_makes_is_of_its_type() -> Result<()> {
    for folder in ["deploy/manifests", "deploy/manifests/monitoring"] {
        check(&render::objects(&render::kustomize(folder)?)?).context(folder)?;
    }
    Ok(())
}

/// The types are strict: a field in the wrong place is lost on the way, and seen.
#[test]
fn a_misplaced_field_is_seen() -> Result<()> {
    let mut objects = render::rendered(&[])?;
    for object in &mut objects {
        if object["kind"] == "DaemonSet" {
            object["spec"]["template"]["spec"]["readOnlyRootFilesystem"] = true.into();
        }
    }
    ensure!(check(&objects).is_err(), "a field that no pod has was taken");
    Ok(())
}
