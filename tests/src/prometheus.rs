//! A real Prometheus beside an agent, with the deployed rules.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{clock, http, machine};

const RULES: &str = include_str!("../../deploy/prometheus/rules.yaml");
/// The limit for each request.
const LIMIT: Duration = Duration::from_secs(30);

/// A running Prometheus. Dropping it kills it.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    place: TempDir,
}

impl Prometheus {
    /// Starts it with this `scrape_config` and waits until it is ready.
    pub fn start(scrape: &Value) -> Result<Self> {
        let place = tempfile::tempdir()?;
        fs::write(place.path().join("rules.yaml"), RULES)?;
        // A short interval for a test. The rules still wait for their own times.
        let interval = if machine::is_emulated() { "3s" } else { "1s" };
        let configuration = json!({
            "global": { "scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [scrape],
        });
        // JSON is valid YAML.
        fs::write(place.path().join("prometheus.yaml"), configuration.to_string())?;
        // Picks a free port.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = File::create(place.path().join("log"))?;
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start prometheus: `cargo xtask setup prometheus` fetches it")?;
        let mut started = Self { child, address, place };
        clock::poll("prometheus is ready", machine::patience(), || {
            if let Some(status) = started.child.try_wait()? {
                bail!("prometheus ended with {status}");
            }
            Ok(started.get("/-/ready").ok())
        })
        .map_err(|error| error.context(started.log()))?;
        Ok(started)
    }

    /// Waits until the alert fires and returns it.
    pub fn wait_for(&self, alert: &str) -> Result<Value> {
        let found = clock::poll(&format!("{alert} fires"), machine::patience(), || {
            let firing = self.firing()?;
            Ok(firing.into_iter().find(|one| one["labels"]["alertname"] == alert))
        });
        // The error contains the targets, or else the log.
        found.map_err(|error| match self.targets() {
            Ok(targets) => error.context(format!("the targets are {targets:#}")),
            Err(_) => error.context(self.log()),
        })
    }

    /// Returns the alerts that fire.
    pub fn firing(&self) -> Result<Vec<Value>> {
        let mut answer = self.api("alerts")?;
        let Value::Array(alerts) = answer["alerts"].take() else { bail!("no alerts: {answer:#}") };
        Ok(alerts.into_iter().filter(|alert| alert["state"] == "firing").collect())
    }

    /// Returns the targets, and the results of their scrapes.
    pub fn targets(&self) -> Result<Value> {
        Ok(self.api("targets")?["activeTargets"].take())
    }

    /// Returns the names of the rules that were evaluated without an error.
    pub fn healthy_rules(&self) -> Result<Vec<String>> {
        let answer = self.api("rules")?;
        let groups = answer["groups"].as_array().context("groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let healthy = rules.filter(|rule| rule["health"] == "ok");
        Ok(healthy.filter_map(|rule| rule["name"].as_str().map(str::to_owned)).collect())
    }

    fn api(&self, what: &str) -> Result<Value> {
        let mut answer: Value = serde_json::from_str(&self.get(&format!("/api/v1/{what}"))?)?;
        ensure!(answer["status"] == "success", "{what}: {answer:#}");
        Ok(answer["data"].take())
    }

    fn get(&self, path: &str) -> Result<String> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        http::get(stream, path, &[])?.ok()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
