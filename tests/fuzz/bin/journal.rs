//! Fuzzes `fuzzer::node::journal`.

#![no_main]

fuzz::program!("journal");
