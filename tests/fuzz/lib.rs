//! The fuzzers as programs of libFuzzer, one for each fuzzer.

pub mod fuzzer;

use std::{env, fs, path::PathBuf};

pub use libfuzzer_sys;

/// Recordings and frozen nodes.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data");

/// The variable with the folder to which a program writes its seeds first.
const SEEDS: &str = "SANDPROBE_SEEDS";

/// Defines one program.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds($name),
            |bytes: &[u8]| ($crate::fuzzer::of($name).expect("a fuzzer").run)(bytes)
        );
    };
}

/// Writes the seeds for libFuzzer.
pub fn write_seeds(name: &str) {
    let Some(folder) = env::var_os(SEEDS).map(PathBuf::from) else { return };
    for (number, seed) in (fuzzer::of(name).expect("a fuzzer").seeds)().into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed).expect("a seed is written");
    }
}
