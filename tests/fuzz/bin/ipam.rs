//! Fuzzes `fuzzer::node::ipam`.

#![no_main]

fuzz::program!("ipam");
