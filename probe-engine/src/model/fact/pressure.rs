//! The pressure on a cgroup's tasks: time in which they could not run, and memory that they could not get.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{id::CgroupKey, scalar::Decimal, time::Nanoseconds};

/// The counters of a pod's cgroup when they were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureRead {
    pub cgroup: CgroupKey,
    pub pressure: Pressure,
}

/// Counters of a cgroup since it was created, or the difference of two readings. Counters that the kernel
/// does not have for it are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    pub cpu: Option<CpuUse>,
    pub memory: Option<MemoryEvents>,
    pub cpu_stall: Option<Stall>,
    pub memory_stall: Option<Stall>,
    pub io_stall: Option<Stall>,
    /// `io.pressure` of the cgroup of the runtime that pulls the node's images, at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_io: Option<Stall>,
}

/// Counters of `cpu.stat` of the pod's cgroup.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Cpu")]
pub struct CpuUse {
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "used_ns", alias = "used")]
    #[schemars(with = "Nanoseconds")]
    pub used: Duration,
    // Tasks were runnable and the limit held them back; summed over the queues of the CPUs.
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "throttled_ns", alias = "throttled")]
    #[schemars(with = "Nanoseconds")]
    pub throttled: Duration,
    #[serde_as(as = "DisplayFromStr")]
    #[serde(rename = "throttled_periods", alias = "periods")]
    #[schemars(with = "Decimal<u64>")]
    pub periods: u64,
    /// The CPU limit that throttled most, in thousandths of a CPU.
    #[serde(rename = "limit_millicpu", alias = "limit", skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Counters of `memory.events` of the pod's cgroup.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Memory")]
pub struct MemoryEvents {
    // How often tasks were slowed down above `memory.high`.
    #[serde_as(as = "DisplayFromStr")]
    #[schemars(with = "Decimal<u64>")]
    pub high: u64,
    // How often `memory.max` was reached.
    #[serde_as(as = "DisplayFromStr")]
    #[schemars(with = "Decimal<u64>")]
    pub max: u64,
    // How often nothing could be reclaimed then.
    #[serde_as(as = "DisplayFromStr")]
    #[schemars(with = "Decimal<u64>")]
    pub oom: u64,
    /// The limit that was reached.
    // `memory.high` if that was reached, else `memory.max`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[serde(rename = "limit_bytes", alias = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Decimal<u64>>")]
    pub limit: Option<u64>,
}

/// Pressure stall information (`Documentation/accounting/psi.rst`): how long some, and how long all non-idle
/// tasks waited for the resource.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    #[serde_as(as = "Nanoseconds")]
    pub some: Duration,
    #[serde_as(as = "Nanoseconds")]
    pub full: Duration,
}

impl Pressure {
    /// Returns the difference to an earlier reading; without one, the counts since the cgroup was created.
    #[must_use]
    pub(crate) fn since(&self, earlier: Option<&Self>) -> Self {
        // The runtime's cgroup is older than the pod's.
        let Some(before) = earlier else { return Self { runtime_io: None, ..*self } };
        Self {
            cpu: self.cpu.zip(before.cpu).map(|(now, before)| now.since(before)),
            memory: self.memory.zip(before.memory).map(|(now, before)| now.since(before)),
            cpu_stall: self.cpu_stall.zip(before.cpu_stall).map(|(now, before)| now.since(before)),
            memory_stall: self.memory_stall.zip(before.memory_stall).map(|(now, before)| now.since(before)),
            io_stall: self.io_stall.zip(before.io_stall).map(|(now, before)| now.since(before)),
            runtime_io: self.runtime_io.zip(before.runtime_io).map(|(now, before)| now.since(before)),
        }
    }

    /// Adds two differences.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            cpu: both(self.cpu, other.cpu, CpuUse::and),
            memory: both(self.memory, other.memory, MemoryEvents::and),
            cpu_stall: both(self.cpu_stall, other.cpu_stall, Stall::and),
            memory_stall: both(self.memory_stall, other.memory_stall, Stall::and),
            io_stall: both(self.io_stall, other.io_stall, Stall::and),
            runtime_io: both(self.runtime_io, other.runtime_io, Stall::and),
        }
    }
}

fn both<T>(one: Option<T>, other: Option<T>, and: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(and(one, other)),
        (one, other) => one.or(other),
    }
}

impl CpuUse {
    fn since(self, before: Self) -> Self {
        Self {
            used: self.used.saturating_sub(before.used),
            throttled: self.throttled.saturating_sub(before.throttled),
            periods: self.periods.saturating_sub(before.periods),
            limit: self.limit,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            used: self.used.saturating_add(other.used),
            throttled: self.throttled.saturating_add(other.throttled),
            periods: self.periods.saturating_add(other.periods),
            limit: other.limit.or(self.limit),
        }
    }
}

impl MemoryEvents {
    fn since(self, before: Self) -> Self {
        Self {
            high: self.high.saturating_sub(before.high),
            max: self.max.saturating_sub(before.max),
            oom: self.oom.saturating_sub(before.oom),
            limit: self.limit,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            high: self.high.saturating_add(other.high),
            max: self.max.saturating_add(other.max),
            oom: self.oom.saturating_add(other.oom),
            limit: other.limit.or(self.limit),
        }
    }
}

impl Stall {
    fn since(self, before: Self) -> Self {
        Self { some: self.some.saturating_sub(before.some), full: self.full.saturating_sub(before.full) }
    }

    fn and(self, other: Self) -> Self {
        Self { some: self.some.saturating_add(other.some), full: self.full.saturating_add(other.full) }
    }
}
