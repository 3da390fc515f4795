//! Control groups.

use crate::{
    engine::{
        id::{ContainerId, PodUid},
        world::cgroup,
    },
    recording::{
        id::{CgroupKey, Text, Time},
        mirror::mirror,
    },
};

mirror! {
    struct cgroup::Cgroup {
        key: CgroupKey,
        path: String,
        level: u32,
        pod: Option<Text<PodUid>>,
        container: Option<Text<ContainerId>>,
        nested: bool,
        created_at: Option<Time>,
        found_at: Option<Time>,
        emptied_at: Option<Time>,
        populated: Option<bool>,
        state: State,
    }
}

mirror! { enum cgroup::State { Live, Removed { at: Time } } }
