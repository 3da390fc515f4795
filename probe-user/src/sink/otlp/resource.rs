//! The node as the resource of everything that is sent.

use std::env::consts::{ARCH, OS};

use opentelemetry_proto::tonic::{common::v1::InstrumentationScope, resource::v1::Resource};

use super::{attribute::Attributes, key};
use crate::recording::Header;

/// The version of the semantic conventions that the attribute names follow.
pub(super) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Describes the node and the agent. `more` are the user's own attributes, which replace others with the same
/// key.
#[must_use]
pub(crate) fn of(header: &Header, host_id: Option<&str>, more: &[(String, String)]) -> Resource {
    let node = header.node.as_str();
    let attributes = Attributes::default()
        .text(key::SERVICE_NAME, "sandprobe")
        .text(key::SERVICE_VERSION, header.made_by.as_str())
        .text(key::SERVICE_INSTANCE, node)
        .text(key::NODE, node)
        .text(key::HOST_NAME, node)
        .some_text(key::HOST_ID, host_id)
        .text(key::HOST_ARCH, arch())
        .text(key::OS_TYPE, OS)
        .text(key::OS_VERSION, header.kernel.as_str())
        .text(key::BOOT_ID, header.boot_id.as_str());
    let attributes = more.iter().fold(attributes, |all, (key, value)| all.text(key, value.as_str()));
    Resource { attributes: attributes.into_list(), ..Resource::default() }
}

/// The scope that names sandprobe as the source.
pub(super) fn scope() -> InstrumentationScope {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    InstrumentationScope { name: "sandprobe".to_owned(), version, ..InstrumentationScope::default() }
}

/// The architecture's name in the semantic conventions.
fn arch() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
