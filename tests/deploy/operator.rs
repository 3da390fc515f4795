//! The used part of the Prometheus operator's kinds, by its API reference (monitoring.coreos.com/v1). Other
//! fields are refused.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

type Texts = BTreeMap<String, String>;

macro_rules! object {
    ($name:ident, $spec:ty) => {
        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            api_version: String,
            kind: String,
            metadata: ObjectMeta,
            spec: $spec,
        }
    };
}

object!(PodMonitor, PodMonitorSpec);
object!(ServiceMonitor, ServiceMonitorSpec);
object!(PrometheusRule, PrometheusRuleSpec);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodMonitorSpec {
    job_label: String,
    selector: LabelSelector,
    pod_metrics_endpoints: Vec<Endpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ServiceMonitorSpec {
    job_label: String,
    selector: LabelSelector,
    endpoints: Vec<Endpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Endpoint {
    port: String,
    path: String,
    interval: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization: Option<Authorization>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_config: Option<TlsConfig>,
    relabelings: Vec<Relabeling>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scheme {
    Http,
    Https,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Authorization {
    credentials: SecretKey,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsConfig {
    server_name: String,
    ca: SecretOrConfigMap,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretOrConfigMap {
    secret: SecretKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretKey {
    name: String,
    key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Relabeling {
    source_labels: Vec<String>,
    target_label: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrometheusRuleSpec {
    groups: Vec<Group>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    expr: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_firing_for: Option<String>,
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    labels: Texts,
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    annotations: Texts,
}
