//! Fuzzes `fuzzer::node::proc`.

#![no_main]

fuzz::program!("proc");
