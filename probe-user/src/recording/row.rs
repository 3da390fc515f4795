//! Rows of the world, as they stand in the file.

mod attachment;
pub(super) mod attempt;
mod call;
mod cgroup;
mod container;
mod hint;
mod list;
mod loss;
mod netns;
mod outbox;
mod pod;
mod process;
mod record;
mod release;
mod sandbox;
mod timer;

use super::{
    boot::Recovery,
    change::Question,
    fact::{Attached, Observation},
    finding::Finding,
    id::{Clock, Decimal, Time},
    mirror::{Mirror as _, mirror},
    phase::Start,
};
use crate::engine::world::{self, watch};

mirror! {
    enum world::Row {
        Clockwork(it: Clockwork),
        Timer { name: timer::Name, due: Time },
        Process(it: process::Process),
        Signal(it: process::Signal),
        Netns(it: netns::Netns),
        Cgroup(it: cgroup::Cgroup),
        Container(it: container::Container),
        Sandbox(it: sandbox::Sandbox),
        Pod(it: pod::Pod),
        Call(it: call::Call),
        Hint(it: hint::Hint),
        Name(it: hint::Name),
        Listing(it: list::Begun),
        Gap(it: list::Gap),
        Partial(it: list::Begun),
        Attachment(it: attachment::Attachment),
        Attempt(it: attempt::Attempt),
        Record { at: Time, record: record::Record },
        Attached(it: Attached),
        Losses(it: loss::Losses),
        Hanging { path: String, since: Time },
        Release(it: release::Release),
        Recovery(it: Box<Recovery>),
        Starts(it: Vec<Start>),
        Pending(it: Box<Observation>),
        Held(it: Box<outbox::Held>),
        Finding(it: Box<Finding>),
        Asked(it: Question),
    }
}

mirror! {
    struct world::Clockwork {
        now: Clock,
        watermark: Clock,
        next_seq: Decimal,
        told_at: Time,
        next_life: Decimal,
        next_pod: Decimal,
        host_netns: u32,
        relisted_at: Option<Time>,
        woke_at: Time,
        judge_at: Option<Time>,
        #[serde(default = "unspent")]
        watches: Budget,
    }
}

mirror! { struct watch::Budget { since: Time, spent: u32 } }

fn unspent() -> Budget {
    Budget::of(&watch::Budget::default())
}
