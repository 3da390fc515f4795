//! sandprobe: sources say facts; the engine believes, remembers and judges; sinks tell.
//!
//! The modules in the order in which a thing goes through them. A kernel record becomes an
//! [`model::fact::Observation`], enters the [`engine::Engine`] once, and leaves as an
//! [`model::change::Output`]; nothing calls back. What the engine wants to know it asks with a question,
//! which is an output; the answer is a fact.

// Without hooks there is no agent, and what only it calls has no caller.
#![cfg_attr(not(feature = "live"), allow(dead_code, unused_imports))]

pub use probe_engine::{engine, model, recording};

#[cfg(feature = "live")]
pub mod source;

mod replay;

pub mod sink;

#[cfg(feature = "live")]
mod agent;
#[cfg(feature = "live")]
mod config;
/// Beside that way: what each thread gives up of root's power before it begins.
#[cfg(feature = "live")]
pub mod confine;
#[cfg(test)]
mod golden;
pub mod session;

pub mod cli;
