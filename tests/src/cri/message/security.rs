//! The security context of a container.

use prost::{Enumeration, Message};
use serde::{Deserialize, Serialize};

use super::sandbox::NamespaceOption;

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Capability {
    /// The names have no `CAP_`.
    #[prost(string, repeated, tag = "1")]
    pub add_capabilities: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub drop_capabilities: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ProfileType {
    RuntimeDefault = 0,
    Unconfined = 1,
    Localhost = 2,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct SecurityProfile {
    #[prost(enumeration = "ProfileType", tag = "1")]
    pub profile_type: i32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Int64Value {
    #[prost(int64, tag = "1")]
    pub value: i64,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct LinuxContainerSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub capabilities: Option<Capability>,
    #[prost(bool, tag = "2")]
    pub privileged: bool,
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
    #[prost(message, optional, tag = "5")]
    pub run_as_user: Option<Int64Value>,
    #[prost(bool, tag = "7")]
    pub readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    pub no_new_privs: bool,
    #[prost(message, optional, tag = "12")]
    pub run_as_group: Option<Int64Value>,
    #[prost(message, optional, tag = "15")]
    pub seccomp: Option<SecurityProfile>,
    #[prost(message, optional, tag = "16")]
    pub apparmor: Option<SecurityProfile>,
}
