//! The fuzzers. Each module takes any bytes as the input of one part of sandprobe, and panics if that part
//! breaks a promise. The tests of this folder run them over seeds and some mutations, and cargo-fuzz runs
//! them for long.

pub mod checkpoint;
pub mod cri;
mod cursor;
pub mod history;
pub mod http;
mod material;
pub mod node;
mod player;
pub mod recording;
pub mod wire;

/// One part of sandprobe with its fuzzer.
pub struct Fuzzer {
    pub name: &'static str,
    /// Inputs with much content, from which others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub run: fn(&[u8]),
}

pub const FUZZERS: [Fuzzer; 12] = [
    Fuzzer { name: "wire", seeds: wire::seeds, run: wire::run },
    Fuzzer { name: "recording", seeds: recording::seeds, run: recording::run },
    Fuzzer { name: "checkpoint", seeds: checkpoint::seeds, run: checkpoint::run },
    Fuzzer { name: "history", seeds: history::seeds, run: history::run },
    Fuzzer { name: "ipam", seeds: node::ipam::seeds, run: node::ipam::run },
    Fuzzer { name: "cni", seeds: node::cni::seeds, run: node::cni::run },
    Fuzzer { name: "bundle", seeds: node::bundle::seeds, run: node::bundle::run },
    Fuzzer { name: "proc", seeds: node::proc::seeds, run: node::proc::run },
    Fuzzer { name: "http", seeds: http::seeds, run: http::run },
    Fuzzer { name: "log", seeds: node::log::seeds, run: node::log::run },
    Fuzzer { name: "journal", seeds: node::journal::seeds, run: node::journal::run },
    Fuzzer { name: "cri", seeds: cri::seeds, run: cri::run },
];

/// Returns the fuzzer of this name.
#[must_use]
pub fn of(name: &str) -> Option<&'static Fuzzer> {
    FUZZERS.iter().find(|fuzzer| fuzzer.name == name)
}
