//! Starts of pods and their phases, as they stand in the file.

use super::{
    change::ContainerRef,
    fact::{Listener, PodName, pressure::Pressure},
    id::{Span, Text, Time},
    mirror::mirror,
};
use crate::engine::{id::ContainerId, phase};

mirror! {
    struct phase::Start {
        pod: PodName,
        sandbox: Text<ContainerId>,
        begin: Time,
        end: Time,
        phases: Vec<Phase>,
        #[serde(default)]
        listening: Vec<Listening>,
        complete: bool,
        #[serde(default)]
        containers_known: bool,
        #[serde(default)]
        missing: Vec<String>,
        revised: bool,
        rebuilt: bool,
        listed: bool,
        suspended: bool,
    }
}

mirror! {
    struct phase::Listening {
        container: ContainerRef,
        begin: Time,
        end: Time,
        socket: Listener,
        gapped: bool,
        suspended: bool,
    }
}

mirror! {
    struct phase::Phase {
        kind: Kind,
        container: Option<ContainerRef>,
        begin: Time,
        end: Time,
        gapped: bool,
        cause: Cause,
    }
}

mirror! {
    enum phase::Kind {
        Prepare,
        Retry,
        Netns,
        Cni { plugin: String, ifname: String },
        Between,
        Pause,
        Image,
        Runtime,
        Cgroup,
        PostStart,
        Init,
        Listening,
    }
}

mirror! {
    struct phase::Cause {
        adds: u32,
        failed: u32,
        wasted: Span,
        took: Span,
        sandboxes: u32,
        runs: u32,
        teardown: Span,
        pressure: Pressure,
    }
}

mirror! { struct phase::Share { kind: Option<Kind>, starts: u32, p50: Span, p90: Span, p99: Span } }
