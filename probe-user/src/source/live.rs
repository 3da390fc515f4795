//! The kernel hooks: the table of hooks, how each is attached on the running kernel, and the kernel data that
//! they need.
//!
//! [`attach::Probe`] loads the eBPF object with the offsets and switches of this kernel and node, and
//! attaches the best mechanism that works for each signal. It tries features and never compares kernel
//! versions. [`selftest::SelfTest`] proves that the hooks fire. [`ring::RingReader`] reads their records.

pub mod attach;
pub(crate) mod btf;
pub(crate) mod error;
mod knob;
pub(crate) mod log;
pub mod pin;
pub(crate) mod plan;
pub mod ring;
pub mod selftest;
pub mod tally;
