//! Sandboxes and who vouches for them.

use crate::{
    engine::{
        id::ContainerId,
        world::{presence, sandbox},
    },
    recording::{
        change::StopReason,
        id::{Decimal, Text, Time},
        kind::Origin,
        mirror::mirror,
    },
};

mirror! {
    struct sandbox::Sandbox {
        id: Text<ContainerId>,
        pod: Option<Decimal>,
        first_at: Time,
        origin: Origin,
        netns: Option<Decimal>,
        netns_path: Option<String>,
        host_network: bool,
        up_since: Option<Time>,
        adds: Vec<Add>,
        presence: Presence,
        state: State,
    }
}

mirror! { struct sandbox::Add { ifname: String, plugin: String, outcome: Outcome, at: Time } }

mirror! { enum sandbox::Outcome { Open, Succeeded, Failed } }

mirror! { enum sandbox::State { Created, Ready { at: Time }, Stopped { at: Time, why: StopReason } } }

mirror! { struct presence::Presence { vouched: Vec<Vouched> } }

mirror! { struct presence::Vouched { by: Voucher, since: Time } }

mirror! { enum presence::Voucher { Kernel, Mount, Cni, Runtime, Cgroupfs, Listing } }
