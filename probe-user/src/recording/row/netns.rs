//! Network namespaces and their addresses.

use crate::{
    engine::{
        id::{ContainerId, Subnet},
        world::netns,
    },
    recording::{
        fact::Task,
        id::{Decimal, NetnsKey, Text, Time},
        mirror::mirror,
    },
};

mirror! {
    struct netns::Netns {
        life: Decimal,
        key: NetnsKey,
        created_at: Option<Time>,
        found_at: Option<Time>,
        vacant_since: Option<Time>,
        creator: Task,
        mounts: Vec<String>,
        sandbox: Option<Text<ContainerId>>,
        proven: bool,
        addresses: Vec<Address>,
        dropped_at: Option<Time>,
        #[serde(default)]
        end_inferred: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        end_unseen: bool,
        gapped: bool,
        #[serde(default)]
        watched: bool,
        state: State,
    }
}

mirror! { enum netns::State { Live, Dropped { at: Time }, Freed { at: Time } } }

mirror! { struct netns::Address { address: Text<Subnet>, ifname: String, ifindex: u32, flags: u32 } }
