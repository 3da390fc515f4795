//! What is known of things before they are seen.

use crate::{
    engine::{
        id::{ContainerId, PodUid},
        world::hint,
    },
    recording::{
        fact::PodName,
        id::{Text, Time},
        kind::{NameSource, Role},
        mirror::mirror,
    },
};

mirror! {
    struct hint::Hint {
        id: Text<ContainerId>,
        at: Time,
        role: Option<Role>,
        sandbox: Option<Text<ContainerId>>,
        name: Option<String>,
        pod: Option<PodName>,
        netns_path: Option<String>,
        started: Option<Time>,
        source: NameSource,
    }
}

mirror! {
    struct hint::Name {
        uid: Text<PodUid>,
        at: Time,
        namespace: String,
        name: String,
        source: NameSource,
    }
}
