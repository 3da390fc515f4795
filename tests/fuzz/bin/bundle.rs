//! Fuzzes `fuzzer::node::bundle`.

#![no_main]

fuzz::program!("bundle");
