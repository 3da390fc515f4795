//! The messages of CRI v1, as far as they are read. They are written by hand, so that the build needs no
//! `protoc`. The field numbers come from `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, which the API's
//! rules freeze.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

/// `VersionResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Version {
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
}

/// `ListPodSandboxResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<Sandbox>,
}

/// `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::source) struct Sandbox {
    #[prost(string, tag = "1")]
    pub(in crate::source) id: String,
    #[prost(message, optional, tag = "2")]
    pub(in crate::source) metadata: Option<Metadata>,
    /// 0: ready.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int64, tag = "4")]
    pub(super) created_at: i64,
}

/// `PodSandboxMetadata`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::source) struct Metadata {
    #[prost(string, tag = "1")]
    pub(in crate::source) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::source) uid: String,
    #[prost(string, tag = "3")]
    pub(in crate::source) namespace: String,
    #[prost(uint32, tag = "4")]
    pub(in crate::source) attempt: u32,
}

/// `ListContainersResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Containers {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<Container>,
}

/// `Container`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) sandbox: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "4")]
    pub(super) image: Option<ImageSpec>,
    /// `ContainerState`.
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
    #[prost(int64, tag = "7")]
    pub(super) created_at: i64,
    #[prost(map = "string, string", tag = "8")]
    pub(super) labels: HashMap<String, String>,
}

/// `ContainerMetadata`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, tag = "2")]
    pub(super) attempt: u32,
}

/// `ImageSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
}

/// `ContainerStatusRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// `ContainerStatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
}

/// `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    /// `ContainerState`.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int32, tag = "7")]
    pub(super) exit_code: i32,
}

/// `ContainerEventResponse`. It also has the statuses of the sandbox and of all its containers, which are
/// skipped.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// `ContainerEventType`.
    #[prost(int32, tag = "2")]
    pub(super) kind: i32,
}
