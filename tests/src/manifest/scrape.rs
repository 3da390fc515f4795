//! The scrape configuration of the agents. It translates the PodMonitor of `deploy/manifests/monitoring` into
//! a `scrape_config` as the Prometheus operator does, without the discovery of pods.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Cluster, array, object, only, text};

const MONITORING: &str = include_str!("../../../deploy/manifests/monitoring/monitoring.yaml");

/// Returns the `scrape_config` of this one agent.
pub fn scrape(cluster: &Cluster, target: SocketAddr) -> Result<Value> {
    let monitor = object(MONITORING, "PodMonitor")?;
    let endpoints = array(&monitor["spec"]["podMetricsEndpoints"])?;
    let endpoint = endpoints.first().context("an endpoint")?;
    only(endpoint, &["authorization", "interval", "path", "port", "relabelings", "scheme", "tlsConfig"])?;
    let file = |key: &Value| Ok::<_, anyhow::Error>(cluster.secret.join(text(key)?));
    Ok(json!({
        // The value of the label that jobLabel names.
        "job_name": "sandprobe",
        "metrics_path": endpoint["path"],
        "scheme": endpoint["scheme"],
        "authorization": { "credentials_file": file(&endpoint["authorization"]["credentials"]["key"])? },
        "tls_config": {
            "server_name": endpoint["tlsConfig"]["serverName"],
            "ca_file": file(&endpoint["tlsConfig"]["ca"]["secret"]["key"])?,
        },
        "static_configs": [{ "targets": [target.to_string()], "labels": { "node": cluster.node } }],
    }))
}
