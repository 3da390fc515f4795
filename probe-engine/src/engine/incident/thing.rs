//! What findings share: the sandbox, plugin, network or address that a finding names.

use std::{collections::BTreeSet, net::IpAddr};

use crate::model::{
    change::{ChangeKind, Finding},
    finding::{Duplicate, DuplicateSandbox, Kind, LeakedAddress},
    id::ContainerId,
};

/// What a cause and its effect share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Sandbox,
    Plugin,
    Network,
    Address,
    /// The text of the effect names the cause.
    Words,
    /// The subject of the cause serves every pod of the node.
    Node,
}

impl By {
    /// Whether there is only one such thing ever. Recurring things, such as calls of a plugin, are shared
    /// only while the cause lasts.
    pub(super) const fn is_unique(self) -> bool {
        match self {
            Self::Sandbox => true,
            Self::Address | Self::Plugin | Self::Network | Self::Words | Self::Node => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing<'a> {
    Sandbox(&'a ContainerId),
    Plugin(&'a str),
    Network(&'a str),
    Address(IpAddr),
    /// The node itself, for findings that affect every pod.
    Node,
}

/// Returns the things through which a finding can lead to others.
pub(super) fn led_by(finding: &Finding) -> BTreeSet<Thing<'_>> {
    match &finding.kind {
        // Pairs of a pod's sandbox and the needless one that was made after it.
        Kind::DuplicateSandbox(DuplicateSandbox { form: Duplicate::AfterCompletion, .. }) => {
            finding.sandboxes.iter().skip(1).step_by(2).map(Thing::Sandbox).collect()
        }
        Kind::TeardownOutOfOrder(_) => {
            sandboxes(finding).chain(blind_plugins(finding).map(Thing::Plugin)).collect()
        }
        Kind::PoolExhaustion(_)
        | Kind::DaemonFailing(_)
        | Kind::NodeNetworkUnready(_)
        | Kind::RuntimeUnresponsive(_) => BTreeSet::from([Thing::Node]),
        Kind::DuplicateSandbox(_)
        | Kind::LeakedAddress(_)
        | Kind::AbandonedStore(_)
        | Kind::OwnerlessReservation(_)
        | Kind::UnverifiedRelease(_)
        | Kind::OrphanNetns(_)
        | Kind::StuckNetnsTeardown(_)
        | Kind::StuckCgroup(_)
        | Kind::StuckStop(_)
        | Kind::StuckStart(_)
        | Kind::OrphanSandbox(_)
        | Kind::AbandonedSandbox(_)
        | Kind::SandboxesReplaced(_)
        | Kind::DuplicateContainer(_)
        | Kind::DuplicateAddress(_)
        | Kind::LostNetwork(_)
        | Kind::CniFailing(_)
        | Kind::CniWrongDel(_)
        | Kind::CniSlow(_)
        | Kind::CniQueue(_)
        | Kind::PhantomSandbox(_)
        | Kind::StaleRuntimeStatus(_)
        | Kind::MissedRuntimeEvent(_)
        | Kind::BlindSpot(_) => named(finding).chain(sandboxes(finding)).collect(),
    }
}

/// Returns the things of one sort through which others can lead to a finding.
pub(super) fn met_by(finding: &Finding, by: By) -> Vec<Thing<'_>> {
    match by {
        By::Sandbox => sandboxes(finding).collect(),
        By::Words | By::Node => vec![Thing::Node],
        By::Plugin => named(finding).filter(|it| matches!(it, Thing::Plugin(_))).collect(),
        By::Network => named(finding).filter(|it| matches!(it, Thing::Network(_))).collect(),
        By::Address => named(finding).filter(|it| matches!(it, Thing::Address(_))).collect(),
    }
}

/// Returns the sandbox of a finding about exactly one.
pub(super) fn only_sandbox(finding: &Finding) -> Option<&ContainerId> {
    let is_about_one = match &finding.kind {
        Kind::LeakedAddress(LeakedAddress { many, .. }) => many.is_none(),
        Kind::TeardownOutOfOrder(_)
        | Kind::OrphanNetns(_)
        | Kind::StuckNetnsTeardown(_)
        | Kind::StuckCgroup(_)
        | Kind::StuckStop(_)
        | Kind::OrphanSandbox(_)
        | Kind::AbandonedSandbox(_)
        | Kind::DuplicateContainer(_)
        | Kind::LostNetwork(_)
        | Kind::CniWrongDel(_)
        | Kind::PhantomSandbox(_)
        | Kind::StaleRuntimeStatus(_)
        | Kind::MissedRuntimeEvent(_) => true,
        Kind::AbandonedStore(_)
        | Kind::OwnerlessReservation(_)
        | Kind::UnverifiedRelease(_)
        | Kind::DuplicateSandbox(_)
        | Kind::StuckStart(_)
        | Kind::SandboxesReplaced(_)
        | Kind::DuplicateAddress(_)
        | Kind::CniFailing(_)
        | Kind::CniSlow(_)
        | Kind::CniQueue(_)
        | Kind::PoolExhaustion(_)
        | Kind::DaemonFailing(_)
        | Kind::NodeNetworkUnready(_)
        | Kind::RuntimeUnresponsive(_)
        | Kind::BlindSpot(_) => false,
    };
    match finding.sandboxes.as_slice() {
        [only] if is_about_one => Some(only),
        [] | [_] | [_, ..] => None,
    }
}

fn sandboxes(finding: &Finding) -> impl Iterator<Item = Thing<'_>> {
    finding.sandboxes.iter().map(Thing::Sandbox)
}

/// Returns the things that the finding itself names.
fn named(finding: &Finding) -> impl Iterator<Item = Thing<'_>> {
    let (plugin, network, addresses) = match &finding.kind {
        Kind::LeakedAddress(it) => {
            let many = it.many.iter().flat_map(|many| &many.first);
            let addresses = [&it.address].into_iter().chain(many).copied().collect();
            (it.plugin.as_deref(), it.network.as_deref(), addresses)
        }
        Kind::OwnerlessReservation(it) => (None, it.network.as_deref(), Vec::new()),
        Kind::StuckStart(it) => (it.plugin.as_deref(), it.network.as_deref(), it.addresses.clone()),
        Kind::StuckStop(it) => (it.plugin.as_deref(), None, Vec::new()),
        Kind::UnverifiedRelease(it) => (Some(it.plugin.as_str()), None, Vec::new()),
        Kind::CniFailing(it) => (Some(it.plugin.as_str()), None, Vec::new()),
        Kind::CniWrongDel(it) => (Some(it.plugin.as_str()), None, it.addresses.clone()),
        Kind::DuplicateAddress(it) => (None, it.network.as_deref(), vec![it.address]),
        Kind::LostNetwork(it) => (it.plugin.as_deref(), it.network.as_deref(), it.addresses.clone()),
        Kind::CniSlow(it) => (Some(it.plugin.as_str()), None, Vec::new()),
        Kind::CniQueue(it) => (Some(it.plugin.as_str()), None, Vec::new()),
        Kind::PoolExhaustion(it) => (None, Some(it.network.as_str()), Vec::new()),
        Kind::AbandonedStore(_)
        | Kind::DaemonFailing(_)
        | Kind::NodeNetworkUnready(_)
        | Kind::RuntimeUnresponsive(_)
        | Kind::DuplicateSandbox(_)
        | Kind::TeardownOutOfOrder(_)
        | Kind::OrphanNetns(_)
        | Kind::StuckNetnsTeardown(_)
        | Kind::StuckCgroup(_)
        | Kind::OrphanSandbox(_)
        | Kind::AbandonedSandbox(_)
        | Kind::SandboxesReplaced(_)
        | Kind::DuplicateContainer(_)
        | Kind::PhantomSandbox(_)
        | Kind::StaleRuntimeStatus(_)
        | Kind::MissedRuntimeEvent(_)
        | Kind::BlindSpot(_) => (None, None, Vec::new()),
    };
    let plugin = plugin.map(Thing::Plugin).into_iter();
    plugin.chain(network.map(Thing::Network)).chain(addresses.into_iter().map(Thing::Address))
}

/// Returns the plugins whose DEL had no network namespace, according to the evidence.
pub(super) fn blind_plugins(finding: &Finding) -> impl Iterator<Item = &str> {
    finding.evidence.iter().filter_map(|it| {
        let ChangeKind::CniStarted { call } = &it.event.what else { return None };
        let is_blind = call.netns.as_deref().unwrap_or_default().is_empty();
        (call.command == "DEL" && call.called_by.is_none() && is_blind).then_some(call.plugin.as_str())
    })
}
