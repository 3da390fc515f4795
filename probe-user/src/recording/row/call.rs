//! CNI calls that have not ended.

use crate::{
    engine::{id::ContainerId, world::call},
    recording::{
        change::CniCall,
        fact::PodName,
        id::{Text, Time},
        kind::Origin,
        mirror::mirror,
    },
};

mirror! {
    struct call::Call {
        call: CniCall,
        at: Time,
        origin: Origin,
        container: Option<Text<ContainerId>>,
        pod: PodName,
        top: bool,
        path: String,
    }
}
