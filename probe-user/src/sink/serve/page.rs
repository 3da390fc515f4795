//! The page: three files, built in.
//!
//! **Invariant:** nothing of the node is in them; they need no token.

/// A file, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
}

pub(super) const INDEX: File =
    File { kind: "text/html; charset=utf-8", bytes: include_bytes!("page/index.html") };
pub(super) const SCRIPT: File =
    File { kind: "text/javascript; charset=utf-8", bytes: include_bytes!("page/app.js") };
pub(super) const STYLE: File =
    File { kind: "text/css; charset=utf-8", bytes: include_bytes!("page/style.css") };
