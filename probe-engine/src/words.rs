//! Text for people and shells that findings, events and reports share. Its functions depend on their
//! arguments only.

#![forbid(unsafe_code)]

pub mod count;
pub mod escape;
pub mod name;
pub mod release;
pub(crate) mod said;
pub mod shell;
pub mod span;
