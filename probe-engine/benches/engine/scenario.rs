//! What is measured: numbers given as `name=number`.

use anyhow::{Context as _, Result, bail};

/// A node and what happens on it while it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Pods that stay.
    pub(crate) pods: u64,
    /// Findings that stay open.
    pub(crate) findings: u64,
    /// Addresses that a store counts as allocated. A runtime has every second holder on record.
    pub(crate) leases: u64,
    /// ADDs that failed shortly before.
    pub(crate) failed: u64,
    /// Network namespaces without a pod.
    pub(crate) namespaces: u64,
    /// Pods that come and go while it is measured.
    pub(crate) turns: u64,
    /// The time from one event to the next.
    pub(crate) step_us: u64,
    /// The least time of a turn.
    pub(crate) pause_ms: u64,
}

impl Scenario {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut it = Self {
            pods: 100,
            findings: 0,
            leases: 0,
            failed: 0,
            namespaces: 0,
            turns: 200,
            step_us: 1000,
            pause_ms: 0,
        };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| format!("{word} is not NAME=NUMBER"))?;
            let value: u64 = value.parse().with_context(|| format!("{word} is not NAME=NUMBER"))?;
            let field = match name {
                "pods" => &mut it.pods,
                "findings" => &mut it.findings,
                "leases" => &mut it.leases,
                "failed" => &mut it.failed,
                "namespaces" => &mut it.namespaces,
                "turns" => &mut it.turns,
                "step_us" => &mut it.step_us,
                "pause_ms" => &mut it.pause_ms,
                _ => bail!("there is no {name}"),
            };
            *field = value;
        }
        Ok(it)
    }
}
