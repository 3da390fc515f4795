//! What is remembered of sandboxes for verdicts.

use crate::{
    engine::{id::ContainerId, world::attempt},
    recording::{
        change::{CgroupRef, ContainerRef, End, Process, What},
        fact::PodName,
        id::{NetnsKey, Text, Time},
        kind::Origin,
        mirror::mirror,
        row::container::{Hook, Listening},
    },
};

mirror! {
    struct attempt::Attempt {
        id: Text<ContainerId>,
        pod: PodName,
        first_at: Time,
        origin: Origin,
        netns_at: Option<Time>,
        up_at: Option<Time>,
        started_at: Option<Time>,
        revised: bool,
        stop_at: Option<Time>,
        death: Option<Death>,
        netns_gone: Option<NetnsGone>,
        over_at: Option<Time>,
        forgotten_at: Option<Time>,
        #[serde(default)]
        abandoned: bool,
        containers: Vec<Ran>,
        gapped: bool,
        #[serde(default)]
        runs_unsure: bool,
        exhibits: Vec<Exhibit>,
    }
}

mirror! { struct attempt::Death { at: Time, end: End, by_runtime: bool } }

mirror! { struct attempt::NetnsGone { at: Time, by: Option<Process> } }

mirror! {
    struct attempt::Ran {
        id: Text<ContainerId>,
        name: Option<String>,
        first_at: Time,
        cgroup_at: Option<Time>,
        started_at: Time,
        listed: bool,
        listening: Option<Listening>,
        #[serde(default)]
        hook: Option<Hook>,
        ended: Option<Ended>,
    }
}

mirror! {
    struct attempt::Ended {
        at: Time,
        code: Option<u32>,
        #[serde(default)]
        stopped_at: Option<Time>,
    }
}

mirror! {
    struct attempt::Exhibit {
        at: Time,
        origin: Origin,
        container: Option<ContainerRef>,
        netns: Option<NetnsKey>,
        cgroup: Option<CgroupRef>,
        what: What,
    }
}
