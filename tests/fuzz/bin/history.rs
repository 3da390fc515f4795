//! Fuzzes `fuzzer::history`.

#![no_main]

fuzz::program!("history");
