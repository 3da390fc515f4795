//! What was read of stores, runtimes and the configuration.

use crate::{
    engine::world::record,
    recording::{
        fact::ledger::{NetworksRead, ProgramFound, RuntimeRead, StoreRead},
        mirror::mirror,
    },
};

mirror! {
    enum record::Record {
        Store(it: StoreRead),
        Runtime(it: RuntimeRead),
        Networks(it: NetworksRead),
        Kubelet(it: bool),
        Program(it: ProgramFound),
        Asked,
    }
}
