//! Standard output: what form it takes, and what its being closed means.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use anyhow::Context;

use super::args::Form;
use crate::sink::{
    Sink,
    jsonl::Jsonl,
    text::{Style, Text},
};

/// Makes lines in that form, for where standard output leads.
pub(super) fn sink(form: Form) -> Box<dyn Sink> {
    match form {
        Form::Json => Box::new(Jsonl),
        Form::Text => Box::new(Text::new(style())),
    }
}

/// Nothing but plain text goes to what is no terminal, or to whoever sets `NO_COLOR` (no-color.org).
fn style() -> Style {
    if !io::stdout().is_terminal() {
        return Style::default();
    }
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|value| value == "dumb");
    let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    Style { color: !no_color && !dumb, width }
}

/// Whether more is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    There,
    /// The pipe is closed: who reads has seen enough, which is no error.
    Gone,
}

/// Writes and empties `bytes`.
pub(super) fn write(bytes: &mut Vec<u8>) -> anyhow::Result<Reader> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    bytes.clear();
    reader(written)
}

/// What the result of writing to standard output says.
pub(super) fn reader(written: io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
