//! Fuzzes `fuzzer::http`.

#![no_main]

fuzz::program!("http");
