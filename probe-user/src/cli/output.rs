//! Standard output: its format, and its end when the reader is gone. Also files that replace it.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{self, IsTerminal, Write},
    os::{fd::AsFd, unix::fs::FileTypeExt as _},
    path::Path,
};

use anyhow::Context;

use super::args::Form;
use crate::sink::{
    Format,
    render::{
        jsonl::Jsonl,
        text::{Style, Text},
    },
};

/// The format for standard output.
pub(super) fn format(form: Form) -> Box<dyn Format> {
    match form {
        Form::Json => Box::new(Jsonl),
        Form::Text => Box::new(Text::new(style())),
    }
}

/// Plain text, unless standard output is a terminal and `NO_COLOR` (no-color.org) is not set.
pub(super) fn style() -> Style {
    if !io::stdout().is_terminal() {
        return Style::default();
    }
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    Style { color: !no_color && !is_dumb(), width }
}

/// Whether the terminal is one that only prints lines.
pub(super) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|value| value == "dumb")
}

/// Whether the reader wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    There,
    /// The pipe or socket is closed: the reader has seen enough, which is no error.
    Gone,
}

/// Writes and empties `bytes`.
pub(super) fn write(bytes: &mut Vec<u8>) -> anyhow::Result<Reader> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    bytes.clear();
    reader(written)
}

/// Interprets the result of a write to standard output.
pub(super) fn reader(written: io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        // A socket is reset if its other end has not read everything that was sent.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            Ok(Reader::Gone)
        }
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Whether it is a socket, and not a pipe, whose reader may have seen enough.
pub(super) fn is_socket(fd: impl AsFd) -> bool {
    let about = fd.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    about.is_ok_and(|about| about.file_type().is_socket())
}

/// Replaces `file` with `bytes`. A reader finds either the old content or the new one, complete.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    put(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn put(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // The target of a link is replaced, not the link.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let old = fs::metadata(&file).ok();
    // A device or a pipe is written to, not replaced.
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return File::options().write(true).open(&file)?.write_all(bytes);
    }
    let name = file.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    // Each hasher state is random: so no other process has this name, nor had one that was killed.
    hidden.push(format!(".{:016x}", RandomState::new().build_hasher().finish()));
    let new = file.with_file_name(hidden);
    // Another file with this name is left alone.
    let mut made = File::options().write(true).create_new(true).open(&new)?;
    let done = old
        .map_or(Ok(()), |old| made.set_permissions(old.permissions()))
        .and_then(|()| made.write_all(bytes))
        .and_then(|()| made.sync_all())
        .and_then(|()| fs::rename(&new, &file));
    if done.is_err() {
        // This temporary file is ours and is not needed.
        fs::remove_file(&new).ok();
    }
    done
}

#[cfg(test)]
mod tests {
    use std::{io, os::unix::net::UnixStream};

    use super::is_socket;

    #[test]
    fn a_pipe_is_no_socket() {
        let (journal, _) = UnixStream::pair().expect("sockets");
        let (_, pipe) = io::pipe().expect("a pipe");
        assert!(is_socket(journal) && !is_socket(pipe));
    }
}
