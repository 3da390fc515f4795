//! The kubelet's health probe of a container.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{only, seconds, text};
use crate::{
    clock,
    http::{self, Answer},
    tls,
};

#[derive(Clone, Debug)]
pub struct Probe {
    pub path: String,
    pub address: SocketAddr,
    /// How long the kubelet lets the probe fail.
    pub patience: Duration,
}

impl Probe {
    pub(super) fn read(probe: &Value) -> Result<Self> {
        only(probe, &["failureThreshold", "httpGet", "periodSeconds", "timeoutSeconds"])?;
        let get = &probe["httpGet"];
        only(get, &["host", "path", "port", "scheme"])?;
        ensure!(get["scheme"] == "HTTPS", "this probe does not support {}", get["scheme"]);
        let host: IpAddr = text(&get["host"])?.parse()?;
        let port: u16 = serde_json::from_value(get["port"].clone())?;
        let times: u32 = serde_json::from_value(probe["failureThreshold"].clone())?;
        let patience = seconds(&probe["periodSeconds"])? * times;
        Ok(Self { path: text(&get["path"])?, address: SocketAddr::new(host, port), patience })
    }

    /// Probes once. It does not verify the certificate, as the kubelet does not.
    pub fn ask(&self) -> Result<Answer> {
        http::get(tls::connect(self.address)?, &self.path, &[])
    }

    /// Waits until the probe succeeds. An error of `alive` ends the wait early.
    pub fn wait(&self, limit: Duration, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
        clock::poll(&format!("200 from {}", self.path), limit, || {
            alive()?;
            Ok(self.ask().ok().filter(|answer| answer.status == 200).map(drop))
        })
    }
}
