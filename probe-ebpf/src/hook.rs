//! The programs: each reads who does what, and has it sent.

pub(crate) mod address;
pub(crate) mod cgroup;
pub(crate) mod cni;
pub(crate) mod environment;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod listen;
pub(crate) mod netns;
pub(crate) mod netns_scan;
pub(crate) mod oom;
pub(crate) mod signal;
