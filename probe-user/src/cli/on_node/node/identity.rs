//! Which node and which boot this is, as a recording's header says it.

use std::{env, fs};

use crate::{engine::Settings, recording::Header, source::clock};

/// `node` is the name that was typed, if one was.
pub(in crate::cli) fn header(node: Option<String>, settings: Settings) -> Header {
    let told = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let node = node
        // As the downward API gives it to a DaemonSet's pod.
        .or_else(|| env::var("NODE_NAME").ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| told("hostname"));
    Header {
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        boot_id: told("random/boot_id"),
        kernel: told("osrelease"),
        boot_wall_ns: clock::boot_wall_ns(),
        settings,
    }
}
