//! The CRI v1 messages that the harness uses. They are written by hand, so that the build needs no `protoc`.
//!
//! The field numbers are those of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, and the API's rules freeze
//! them. A field that is left out here is not sent, and is skipped when received. Requests and answers with
//! one id all have it as field 1, so one [`Id`] is enough.

pub mod container;
pub mod event;
pub mod sandbox;
pub mod security;

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct Id {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    #[prost(string, tag = "1")]
    pub id: String,
    /// Requests `info`, which contains the process id.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// Requests the status of the runtime itself. [`StatusRequest`] is for a sandbox or container.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeStatusRequest {
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// The runtime's status without its conditions.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeStatusResponse {
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Version {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}
