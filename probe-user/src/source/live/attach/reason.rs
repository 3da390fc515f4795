//! Why a hook is not attached, in one short line. aya's own errors repeat the verifier's whole log.

use std::{collections::BTreeSet, error::Error, io};

use aya::programs::ProgramError;

use crate::source::node::missing_right::MissingRight;

/// A longer line of a verifier's log is cut off, bytes.
const MAX_LINE_BYTES: usize = 160;

/// Why something does not work here, and which requirements could be met.
#[derive(Debug)]
pub(super) struct Why {
    pub(super) text: String,
    pub(super) lacks: BTreeSet<MissingRight>,
    /// The reason may have passed at the next try: a setting that is easily changed, or a lack of memory.
    pub(super) may_pass: bool,
}

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self { text, lacks: BTreeSet::new(), may_pass: false }
    }
}

/// Returns whether the same call may succeed later.
pub(super) fn may_pass(error: &ProgramError) -> bool {
    let error = match error {
        ProgramError::LoadError { io_error, .. } => io_error,
        ProgramError::SyscallError(error) => &error.io_error,
        _ => return false,
    };
    let passing =
        [libc::ENOMEM, libc::EBUSY, libc::EAGAIN, libc::EINTR, libc::EMFILE, libc::ENFILE, libc::ENOSPC];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

pub(super) fn reason(error: &ProgramError) -> String {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            match verdict(&log) {
                Some(line) => format!("the kernel refuses the program: {line} ({})", errno(io_error)),
                None => format!("the kernel refuses the program: {}", errno(io_error)),
            }
        }
        ProgramError::SyscallError(error) => format!("{} fails: {}", error.call, errno(&error.io_error)),
        other => {
            let mut line = other.to_string();
            let mut source = other.source();
            while let Some(cause) = source {
                line = format!("{line}: {cause}");
                source = cause.source();
            }
            line
        }
    }
}

/// Returns the text for an error. `ENOTSUPP` (524) is internal to the kernel; the C library has no text for
/// it.
fn errno(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(524) => "not supported by this kernel".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the last line of the verifier's log before its statistics.
fn verdict(log: &str) -> Option<&str> {
    let line = log.lines().map(str::trim).rfind(|line| {
        !line.is_empty()
            && !["processed ", "verification time", "stack depth"].iter().any(|start| line.starts_with(start))
    })?;
    Some(line.get(..MAX_LINE_BYTES).unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn the_verdict_stands_before_the_statistics() {
        let log = "0: (b7) r0 = 0\nR1 invalid mem access 'inv'\nverification time 5 usec\nstack depth 8\n\
                   processed 3 insns (limit 1000000)\n\n";
        assert_eq!(verdict(log), Some("R1 invalid mem access 'inv'"));
        assert_eq!(verdict("processed 3 insns"), None);
        assert_eq!(verdict(""), None);
    }
}
