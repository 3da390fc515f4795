//! Messages of `GetContainerEvents`.

use prost::{Enumeration, Message};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ContainerEventType {
    Created = 0,
    Started = 1,
    Stopped = 2,
    Deleted = 3,
}

/// The runtime also sends the statuses of the sandbox and of all its containers. These are left out.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerEvent {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(enumeration = "ContainerEventType", tag = "2")]
    pub kind: i32,
}
