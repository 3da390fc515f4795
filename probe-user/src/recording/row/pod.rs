//! Pods.

use crate::{
    engine::{id::PodUid, world::pod},
    recording::{
        fact::pressure::Pressure,
        id::{CgroupKey, Decimal, Text, Time},
        kind::{NameSource, Origin},
        mirror::mirror,
    },
};

mirror! {
    struct pod::Pod {
        id: Decimal,
        uid: Option<Text<PodUid>>,
        namespace: Option<String>,
        name: Option<String>,
        source: NameSource,
        first_at: Time,
        origin: Origin,
        cgroups: Vec<CgroupKey>,
        asked: u32,
        left_at: Option<Time>,
        made_at: Option<Time>,
        is_started: bool,
        #[serde(default)]
        expected: Vec<String>,
        readings: Vec<(Time, Pressure)>,
        state: State,
    }
}

mirror! { enum pod::State { Present, Gone { at: Time } } }
