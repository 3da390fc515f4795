//! Fuzzes `fuzzer::recording`.

#![no_main]

fuzz::program!("recording");
