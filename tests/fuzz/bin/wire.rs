//! Fuzzes `fuzzer::wire`.

#![no_main]

fuzz::program!("wire");
