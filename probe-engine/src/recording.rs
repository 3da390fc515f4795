//! The recording: every call into the engine, one line of JSON each. Replaying the calls gives the same
//! outputs, byte for byte.
//!
//! The first line is the header, then come the calls in order, and the last line gives their number. The
//! format of each fact is derived from the engine's type, so a renamed field or variant changes the format.
//! Numbers of 64 bits are decimal strings, because many readers of JSON keep only 53 bits of a number.
//!
//! **Invariant:** every recording stays readable for ever: a change of the format raises [`VERSION`] and adds
//! to the table of fixups. `tests/data/format-1.jsonl` is such a recording, and no test rewrites it.

mod fixup;
mod header;
pub mod history;
mod line;
mod reader;
pub mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use header::Header;
pub use reader::{ReadError, Reader};
pub use writer::{WriteError, Writer};

pub use crate::engine::Call;

/// The version of the format that is written.
pub(crate) const VERSION: u32 = 2;

/// The longest line read or written, bytes: enough for the reservations that one reading of a store can hold.
pub(crate) const LONGEST_LINE: usize = 32 << 20;

/// The longest header, bytes, and the most buffer kept between lines. A foreign file without line ends is
/// recognized by this much of its beginning.
const LONGEST_HEADER: usize = 1 << 20;
