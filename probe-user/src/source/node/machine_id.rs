//! The id of the node's installation, in `/etc/machine-id` (machine-id(5)).

use crate::source::host::HostRoot;

const FILE: &str = "/etc/machine-id";

/// Reads the id; `None` if the file is missing or has no valid id.
#[must_use]
pub(crate) fn read(root: &HostRoot) -> Option<String> {
    let id = String::from_utf8(root.read(FILE).ok()?).ok()?;
    Some(id.trim().to_owned()).filter(|id| is_one(id))
}

/// Returns whether this is an id: 32 hex digits.
#[must_use]
pub(crate) fn is_one(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
