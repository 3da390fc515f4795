//! The recording: every call into the engine, one line of JSON each, so that making the calls again gives the same
//! outputs, byte for byte.
//!
//! The first line is the header, then come the calls in the order in which they were made, and the last line says how
//! many there were. The form of each fact is derived from the engine's type, so a renamed field or variant changes the
//! format. Numbers of 64 bits are decimal strings, because many readers of JSON keep only 53 bits of a number.
//!
//! **Invariant:** a recording once made can be read for ever: a change of the format raises [`VERSION`] and adds to
//! the table of fixups. `tests/data/format-1.jsonl` is such a recording, and no test writes it anew.

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

/// The format that this version writes.
pub(crate) const VERSION: u32 = 1;

/// The longest line taken or written, bytes: as many reservations as one reading of a store can hold.
pub(crate) const LONGEST_LINE: usize = 32 << 20;

/// The longest header, bytes, and the most that is kept between lines: a foreign file with no line ends is known by
/// its beginning.
const LONGEST_HEADER: usize = 1 << 20;
