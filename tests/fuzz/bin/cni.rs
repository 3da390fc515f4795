//! Fuzzes `fuzzer::node::cni`.

#![no_main]

fuzz::program!("cni");
