//! A start as `sandprobe` reports it: its phases by name, with their times.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A phase, from the agent or from the trace.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    /// The phase's name with the plugin and its interface, or with the container's name.
    pub(super) name: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// The phase in the agent's event. Null for a phase of the trace.
    pub(super) json: Value,
}

#[derive(Debug)]
pub(super) struct Start {
    begin: u64,
    total: Duration,
    pub(super) phases: Vec<Phase>,
}

impl Phase {
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.end - self.begin)
    }
}

impl Start {
    pub(super) fn of(event: &Value) -> Result<Self> {
        let start = &event["start"];
        ensure!(start["complete"] == true, "the start is not complete: {start:#}");
        for mark in ["revised", "rebuilt", "listed", "gapped"] {
            ensure!(start[mark].is_null(), "the start is {mark}: {start:#}");
        }
        let phases = start["phases"].as_array().context("phases")?;
        Ok(Self {
            begin: number(&start["begin_ns"])?,
            total: Duration::from_nanos(number(&start["total_ns"])?),
            phases: phases.iter().map(phase).collect::<Result<_>>()?,
        })
    }

    /// Returns the longest phase, and the first of several, as `sandprobe pods` names it.
    pub(super) fn slowest(&self) -> Result<&Phase> {
        self.phases.iter().rev().max_by_key(|phase| phase.took()).context("it has no phases")
    }

    /// Checks that each phase begins where the one before ends, and that their sum is the whole.
    pub(super) fn check_sum(&self, allowed: Duration) -> Result<()> {
        let mut at = self.begin;
        for phase in &self.phases {
            ensure!(phase.begin == at, "{} does not begin where the one before ends", phase.name);
            at = phase.end;
        }
        let sum: Duration = self.phases.iter().map(Phase::took).sum();
        ensure!(sum.abs_diff(self.total) <= allowed, "the phases are {sum:?}, the whole {:?}", self.total);
        Ok(())
    }

    /// Returns the distance of each boundary from that of `others`, which have equal names.
    pub(super) fn apart(&self, others: &[Phase]) -> Result<Vec<Duration>> {
        let (own, others) = (lasting(&self.phases), lasting(others));
        let names = |phases: &[&Phase]| phases.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>();
        let (own_names, expected) = (names(&own), names(&others));
        ensure!(own_names == expected, "the phases are\n{own_names:?}, in the trace\n{expected:?}");
        let begin = self.begin.abs_diff(others.first().context("no phase")?.begin);
        let ends = own.iter().zip(others).map(|(one, other)| one.end.abs_diff(other.end));
        Ok([begin].into_iter().chain(ends).map(Duration::from_nanos).collect())
    }
}

/// Leaves out the shortest pauses between two plugins. A runtime may call both at once. Then the times cannot
/// show whether the first ended before the second began.
fn lasting(phases: &[Phase]) -> Vec<&Phase> {
    const SHORTEST: Duration = Duration::from_micros(100);
    phases.iter().filter(|phase| phase.name != "between" || phase.took() >= SHORTEST).collect()
}

fn phase(json: &Value) -> Result<Phase> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let parts = [&json["phase"], &json["plugin"], &json["ifname"], &json["container"]["name"]];
    let name: Vec<_> = parts.into_iter().filter_map(text).collect();
    let begin = number(&json["begin_ns"])?;
    let end = begin + number(&json["duration_ns"])?;
    Ok(Phase { name: name.join(" "), begin, end, json: json.clone() })
}

pub(super) fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().with_context(|| format!("a number as text, not {value}"))?;
    Ok(text.parse()?)
}
