//! The header of a recording: the node and the boot.

use std::{env, fs};

use crate::{engine::Settings, recording::Header, source::clock};

/// `node` is the name that was typed, if any.
pub(in crate::cli) fn header(node: Option<String>, settings: Settings) -> Header {
    let told = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let node = node
        // A DaemonSet's pod gets it from the downward API.
        .or_else(|| env::var("NODE_NAME").ok())
        .filter(|name| !name.is_empty())
        // The kubelet makes the same of the host's name.
        .unwrap_or_else(|| told("hostname").to_lowercase());
    Header {
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        boot_id: told("random/boot_id"),
        kernel: told("osrelease"),
        boot_wall_ns: clock::boot_wall_ns(),
        settings,
    }
}
