//! The kernel's hooks: what they are, how each is attached on the running kernel, and what they need to know of it.
//!
//! [`attach::Probe`] loads the eBPF object with the offsets and switches of this kernel and node, and attaches each
//! signal by the best mechanism that works. Features are tried, versions never compared.
//! [`selftest::SelfTest`] proves that they fire, and [`ring::RingReader`] tells what they write.

pub mod attach;
pub mod btf;
pub mod error;
mod knob;
pub mod log;
pub mod plan;
pub mod ring;
pub mod selftest;
pub mod tally;
