//! What keeps addresses and sandboxes on record, as it stands in the file.

use std::net::IpAddr;

use super::PodName;
use crate::{
    engine::{
        fact,
        id::{ContainerId, Subnet},
    },
    recording::{
        id::{Decimal, Text, Time},
        mirror::mirror,
    },
};

mirror! { struct fact::StoreRead { store: Store, reservations: Vec<Reservation>, complete: bool } }

mirror! { struct fact::Store { kind: StoreKind, path: String, network: Option<String> } }

mirror! { enum fact::StoreKind { HostLocal, AwsIpamd, Declared } }

mirror! { struct fact::Reservation { address: Text<IpAddr>, holder: Option<Holder>, since: Time } }

mirror! { struct fact::Holder { container: Text<ContainerId>, ifname: String } }

mirror! {
    struct fact::RuntimeRead {
        place: String,
        kind: Option<RuntimeKind>,
        sandboxes: Vec<RuntimeSandbox>,
        complete: bool,
    }
}

mirror! { enum fact::RuntimeKind { Containerd, Crio, Docker } }

mirror! { struct fact::RuntimeSandbox { id: Text<ContainerId>, pod: Option<PodName> } }

mirror! { struct fact::NetworksRead { networks: Vec<Network>, complete: bool } }

mirror! {
    struct fact::Network { name: String, plugins: Vec<String>, ipam: Option<String>, pools: Vec<Pool> }
}

mirror! {
    struct fact::Pool { subnet: Text<Subnet>, first: Text<IpAddr>, last: Text<IpAddr>, size: Decimal }
}

mirror! { struct fact::ProgramFound { path: String, version: Option<String> } }

mirror! { struct fact::MessageFound { container: Text<ContainerId>, text: Option<String>, source: String } }
