//! The fuzzers as programs of libFuzzer, one for each fuzzer.

pub mod fuzzer;

use std::{env, fs, path::PathBuf};

pub use libfuzzer_sys;

/// Recordings and frozen nodes.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data");

/// If it is set, a program begins by writing its seeds to this folder.
const SEEDS: &str = "SANDPROBE_SEEDS";

/// The whole of one program.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds($name),
            |bytes: &[u8]| ($crate::fuzzer::of($name).expect("a fuzzer").run)(bytes)
        );
    };
}

/// Where libFuzzer finds them.
pub fn write_seeds(name: &str) {
    let Some(folder) = env::var_os(SEEDS).map(PathBuf::from) else { return };
    for (number, seed) in (fuzzer::of(name).expect("a fuzzer").seeds)().into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed).expect("a seed is written");
    }
}
