//! Runs each fuzzer for a moment: over its seeds, over inputs that once failed, and over mutations of both.
//! The mutations are the same each time. `cargo xtask fuzz` runs them for long.

pub mod fuzzer;
mod mutate;

use std::{fs, panic, path::Path};

use fuzzer::Fuzzer;
use mutate::Mutator;

/// Recordings and frozen nodes.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
/// Inputs that once failed, in a folder for each fuzzer.
const FAILED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/failed");

/// How many mutations are tried.
const MUTATIONS: usize = 100;

/// Runs an input, and names the file of one that fails.
fn try_input(fuzzer: &Fuzzer, input: &[u8]) {
    // The panic has printed its own message.
    if panic::catch_unwind(|| (fuzzer.run)(input)).is_err() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", fuzzer.name));
        fs::write(&file, input).expect("the input is kept");
        panic!("{} fails with the input in {}", fuzzer.name, file.display());
    }
}

fn run(name: &str) {
    let fuzzer = fuzzer::of(name).expect("a fuzzer");
    let mut seeds = (fuzzer.seeds)();
    if let Ok(entries) = fs::read_dir(Path::new(FAILED).join(name)) {
        seeds.extend(entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a file")));
    }
    seeds.iter().for_each(|seed| try_input(fuzzer, seed));
    let mut mutator = Mutator::new(&seeds);
    (0..MUTATIONS).for_each(|_| try_input(fuzzer, &mutator.next_input()));
}

/// A test for each fuzzer, and a check that none is missing.
macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_fuzzer_has_a_test_and_a_program() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(fuzzer::FUZZERS.map(|fuzzer| fuzzer.name), tested);
            let mut programs: Vec<String> = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/bin"))
                .expect("the programs")
                .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
                .collect();
            programs.sort();
            let mut expected = tested.map(|name| format!("{name}.rs")).to_vec();
            expected.sort();
            assert_eq!(programs, expected);
        }
    };
}

tests! { wire recording checkpoint history ipam cni bundle proc http log journal cri }
