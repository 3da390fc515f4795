//! Findings, as they stand in the file.

use std::net::IpAddr;

use super::{
    change::Process,
    fact::{
        PodName,
        ledger::{MessageFound, ProgramFound, Store},
    },
    id::{Decimal, NetnsKey, Span, Text, Time},
    kind::{List, Signal},
    mirror::mirror,
    row::attempt::Exhibit,
};
use crate::engine::{
    finding,
    id::{ContainerId, Subnet},
};

mirror! {
    struct finding::Finding {
        key: Text<finding::Key>,
        kind: Kind,
        severity: Severity,
        stage: Stage,
        since: Time,
        opened_at: Time,
        confirmed_at: Option<Time>,
        closed_at: Option<Time>,
        pod: Option<PodName>,
        sandboxes: Vec<Text<ContainerId>>,
        gapped: bool,
        evidence: Vec<Evidence>,
        programs: Vec<ProgramFound>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        runtimes: Vec<String>,
    }
}

mirror! { struct finding::Evidence { sandbox: Text<ContainerId>, exhibit: Exhibit } }

mirror! { enum finding::Stage { Candidate, Confirmed, Closed } }

mirror! { enum finding::Severity { Info, Warning, Critical } }

mirror! {
    enum finding::Kind {
        LeakedAddress(it: LeakedAddress),
        AbandonedStore { path: String, network: String, count: u32 },
        UnverifiedRelease { plugin: String, count: u32 },
        DuplicateSandbox { form: Duplicate, count: u32 },
        TeardownOutOfOrder { how: OutOfOrder, killer: Option<Process>, signal: Option<u32> },
        OrphanNetns { netns: NetnsKey, mounts: Vec<String> },
        StuckNetnsTeardown { netns: NetnsKey, held: Span, waiting: u32 },
        StuckCgroup { path: String, populated: Option<bool> },
        OrphanSandbox { process: Process },
        DuplicateContainer { name: String, containers: Vec<Text<ContainerId>> },
        DuplicateAddress { network: Option<String>, address: Text<IpAddr> },
        CniFailing(it: CniFailing),
        CniSlow { plugin: String, command: String, took: Span, open: bool },
        CniQueue { waiting: u32, oldest: Span, plugin: String },
        PoolExhaustion(it: PoolExhaustion),
        BlindSpot { spot: Blind, weaker: Vec<Weaker> },
    }
}

mirror! {
    struct finding::LeakedAddress {
        address: Text<IpAddr>,
        network: Option<String>,
        inferred: bool,
        ifname: String,
        plugin: Option<String>,
        cause: Cause,
        stores: Vec<Store>,
        #[serde(default)]
        many: Option<Many>,
    }
}

mirror! { struct finding::Many { count: u32, first: Vec<Text<IpAddr>> } }

mirror! { enum finding::Cause { DelMissing, DelBlind, DelFailed, AddFailed, RuntimeEnded, StaleRecord } }

mirror! { enum finding::Duplicate { Concurrent, AfterCompletion, UnusedRebuild } }

mirror! { enum finding::OutOfOrder { PauseKilled, PauseOutOfMemory, NetnsGone } }

mirror! {
    struct finding::CniFailing {
        plugin: String,
        attempts: u32,
        pods: u32,
        wasted: Span,
        code: Option<u32>,
        message: Option<MessageFound>,
    }
}

mirror! {
    struct finding::PoolExhaustion {
        network: String,
        subnet: Text<Subnet>,
        size: Decimal,
        used: Decimal,
        leaked: Decimal,
        free: Decimal,
        runs_out_in: Option<Span>,
    }
}

mirror! {
    enum finding::Blind {
        Signal { signal: Signal },
        Lost { count: Decimal },
        Store { path: String },
        Runtime { place: Option<String> },
        CniCache { path: String, count: Decimal },
        File { path: String },
        Listing { list: List },
    }
}

mirror! {
    enum finding::Weaker {
        LeakedAddress,
        DuplicateSandbox,
        TeardownOutOfOrder,
        OrphanNetns,
        StuckNetnsTeardown,
        StuckCgroup,
        OrphanSandbox,
        CniFailing,
        PoolExhaustion,
    }
}
