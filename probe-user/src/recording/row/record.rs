//! What was read of stores, runtimes and the configuration.

use crate::{
    engine::{id::ContainerId, world::record},
    recording::{
        fact::ledger::{NetworksRead, ProgramFound, RuntimeRead, StoreRead},
        id::{Text, Time},
        mirror::mirror,
    },
};

mirror! {
    enum record::Record {
        Store(it: StoreRead),
        Runtime(it: RuntimeRead),
        Networks(it: NetworksRead),
        Unread { path: String, since: Time },
        Nameless(it: Text<ContainerId>),
        Kubelet(it: bool),
        Program(it: ProgramFound),
        Asked,
    }
}
