//! Fuzzes `fuzzer::checkpoint`.

#![no_main]

fuzz::program!("checkpoint");
