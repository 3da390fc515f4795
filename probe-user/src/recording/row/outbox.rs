//! Changes that were not told yet.

use crate::{
    engine::{id::ContainerId, outbox},
    recording::{
        change::What,
        fact::PodName,
        id::{CgroupKey, Decimal, Text, Time},
        kind::{Origin, Role},
        mirror::mirror,
    },
};

mirror! {
    struct outbox::Held {
        at: Time,
        origin: Origin,
        late: bool,
        subject: Subject,
        wait: Wait,
        what: What,
    }
}

mirror! {
    struct outbox::Subject {
        pod: Option<Decimal>,
        named: Option<PodName>,
        sandbox: Option<Text<ContainerId>>,
        container: Option<Text<ContainerId>>,
        netns: Option<Decimal>,
        cgroup: Option<CgroupKey>,
    }
}

mirror! { enum outbox::Wait { Nothing, Name, Role(it: Role) } }
