//! The words of the whole agent, each said once: what sources say, what the engine says, and what is kept of it. Types
//! and what follows from one value of them alone; believing and judging is the engine's.
//!
//! **Invariant:** recordings, state files, the history, the stream and the API have their form from the derives of these
//! types.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::wildcard_enum_match_arm)]

pub mod change;
pub mod fact;
pub mod finding;
pub mod id;
pub mod phase;
pub mod recovery;
pub mod reference;
pub mod time;
