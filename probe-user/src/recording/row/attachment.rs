//! Attachments of sandboxes to networks, and the addresses that they were given.

use std::net::IpAddr;

use crate::{
    engine::{id::ContainerId, world::attachment},
    recording::{
        fact::{PodName, ledger::MessageFound},
        id::{Decimal, Span, Text, Time},
        mirror::mirror,
    },
};

mirror! {
    struct attachment::Attachment {
        container: Text<ContainerId>,
        ifname: String,
        pod: PodName,
        network: Option<String>,
        inferred: bool,
        netns_path: Option<String>,
        first_at: Time,
        last_at: Time,
        plugins: Vec<Plugin>,
        cached_at: Option<Time>,
        leases: Vec<Lease>,
        message: Option<MessageFound>,
        unverified: bool,
        gapped: bool,
    }
}

mirror! {
    struct attachment::Plugin {
        name: String,
        path: String,
        add: Runs,
        del: Runs,
        blind: Runs,
        #[serde(default)]
        asked_at: Option<Time>,
        #[serde(default)]
        earlier: Option<Earlier>,
    }
}

mirror! { struct attachment::Earlier { failed: u32, first_at: Time, wasted: Span } }

mirror! {
    struct attachment::Runs {
        begun: u32,
        succeeded: u32,
        failed: u32,
        unseen: u32,
        first_at: Time,
        last_at: Time,
        code: Option<u32>,
        wasted: Span,
        longest: Span,
        longest_at: Time,
    }
}

mirror! {
    struct attachment::Lease {
        address: Text<IpAddr>,
        since: Time,
        plugin: Option<String>,
        kernel: Option<Decimal>,
        cached: bool,
        stores: Vec<String>,
        stored: bool,
    }
}
