//! Fuzzes `fuzzer::cri`.

#![no_main]

fuzz::program!("cri");
