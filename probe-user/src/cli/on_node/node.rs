//! The node that a command reads: its files, its boot, and the hooks in its kernel.

pub(in crate::cli) mod args;
pub(in crate::cli) mod boot;
pub(in crate::cli) mod hooks;
pub(in crate::cli) mod identity;
pub(in crate::cli) mod place;
pub(in crate::cli) mod scan;
