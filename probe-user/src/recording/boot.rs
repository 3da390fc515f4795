//! Boots and recoveries, as they stand in recordings and in the history.

use super::{
    id::{Decimal, Span, Text, Time},
    mirror::mirror,
};
use crate::engine::{
    boot,
    id::{ContainerId, PodUid},
};

mirror! {
    struct boot::BootRead { boot_id: String, kernel: String, boot_wall_ns: Text<i64>, before: Before }
}

mirror! {
    struct boot::Before {
        boot_id: Option<String>,
        ordered: Option<Ordered>,
        alive_wall_ns: Option<Text<i64>>,
        pods: Option<Vec<Pod>>,
        unseen: Option<Unseen>,
    }
}

mirror! { struct boot::Unseen { boots: u32, last_wall_ns: Text<i64>, source: Source } }

mirror! { struct boot::Ordered { wall_ns: Text<i64>, by: String, source: Source } }

mirror! { enum boot::Source { Boot, Hook, ProcStart, FileTime, Journal, Wtmp } }

mirror! { struct boot::Mark { at: Time, source: Source } }

mirror! { enum boot::Kind { Static, System, Service } }

mirror! {
    struct boot::Pod {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<Text<PodUid>>,
        kind: Kind,
        #[serde(default)]
        listens: bool,
    }
}

mirror! { struct boot::Back { pod: Pod, mark: Mark, listened: Option<Time> } }

mirror! { enum boot::Recovered { Started, Listening } }

/// What there was before there was a choice.
pub(super) fn started() -> Recovered {
    Recovered::Started
}

mirror! {
    struct boot::Try { sandbox: Text<ContainerId>, began: Time, ended: Time, failed: Option<String> }
}

mirror! { struct boot::Order { at: Time, by: String, pods: Vec<Pod> } }

mirror! {
    struct boot::Recovery {
        boot: Option<BootRead>,
        quiet: Span,
        #[serde(default = "started")]
        recovered: Recovered,
        #[serde(default)]
        hears: bool,
        watched_since: Option<Time>,
        init: Option<Mark>,
        runtime: Option<Mark>,
        kubelet: Option<Mark>,
        tries: Vec<Try>,
        leased_since: Option<Time>,
        pods: Vec<Back>,
        order: Option<Order>,
        closed: bool,
        seen_until: Time,
        revision: Decimal,
    }
}
