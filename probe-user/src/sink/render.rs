//! What output looks like: text, JSON, pictures, and the words and times in them.
//!
//! Here is what makes bytes of the model's types, whoever reads or writes them.

pub mod chart;
pub mod doctor;
pub(crate) mod evidence;
pub mod jsonl;
pub mod page;
pub mod perfetto;
pub(crate) mod phase;
pub(crate) mod recovery;
pub(crate) mod summary;
pub mod text;
pub(crate) mod wall_clock;
