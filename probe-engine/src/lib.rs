//! The core of sandprobe, and all of it that decides: the words in which everything is said ([`model`]), the engine that
//! believes, remembers and judges ([`engine`]), recordings of what it was told ([`recording`]), and the text that says it to
//! people ([`words`]).
//!
//! A crate of its own, so that who changes a verdict builds and tests nothing else.

pub mod engine;
pub mod model;
pub mod recording;
pub mod words;
