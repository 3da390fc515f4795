//! Text for people and shells that findings, events and reports have in common: made of values alone.

#![forbid(unsafe_code)]

pub mod count;
pub mod escape;
pub mod name;
pub mod release;
pub(crate) mod shell;
pub mod span;
