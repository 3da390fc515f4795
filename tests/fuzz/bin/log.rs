//! Fuzzes `fuzzer::node::log`.

#![no_main]

fuzz::program!("log");
