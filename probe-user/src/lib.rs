//! sandprobe: sources bring facts in, the engine judges them, sinks write the results.
//!
//! The modules are listed in the order of the data flow. A kernel record becomes an
//! [`model::fact::Observation`], enters the [`engine::Engine`] once, and leaves as an
//! [`model::change::Output`]. Nothing calls back. If the engine needs to know more, it asks a question, which
//! is an output too; the answer is a fact.

// Without the feature `live` there is no agent, so some functions have no caller.
#![cfg_attr(not(feature = "live"), allow(dead_code, unused_imports))]

pub use probe_engine::{engine, known, model, recording, words};

#[cfg(feature = "live")]
pub mod source;

#[cfg(feature = "live")]
mod api_server;
mod bounded_read;
mod duration;
#[cfg(feature = "live")]
mod grpc;
#[cfg(feature = "live")]
mod program_pages;
mod replay;
#[cfg(feature = "live")]
mod retry_after;
mod size;

pub mod sink;

#[cfg(feature = "live")]
mod agent;
#[cfg(feature = "live")]
mod config;
/// Apart from the data flow: drops each thread's rights before it begins.
#[cfg(feature = "live")]
pub mod confine;
#[cfg(test)]
mod golden;
pub mod session;

pub mod cli;
