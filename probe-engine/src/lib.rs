//! The core of sandprobe, which makes all decisions: the shared types ([`model`]), the engine that keeps the
//! state of the node and judges it ([`engine`]), recordings of the engine's input ([`recording`]), known
//! problems ([`known`]), and text for people ([`words`]).
//!
//! It is a crate of its own, so that a change of a verdict builds and tests nothing else.

pub mod engine;
pub mod known;
pub mod model;
pub mod recording;
pub mod words;
