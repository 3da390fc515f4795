//! The id that the node's installation has, in `/etc/machine-id` (machine-id(5)).

use super::host::HostRoot;

const FILE: &str = "/etc/machine-id";

/// `None` where there is none, or one that is no id.
#[must_use]
pub(crate) fn read(root: &HostRoot) -> Option<String> {
    let id = String::from_utf8(root.read(FILE).ok()?).ok()?;
    Some(id.trim().to_owned()).filter(|id| is_one(id))
}

/// 32 hex digits.
#[must_use]
pub(crate) fn is_one(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
