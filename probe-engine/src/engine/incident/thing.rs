//! What findings share: the sandbox, plugin, network or address that both name.

use crate::model::{
    change::{ChangeKind, Finding},
    finding::{Duplicate, DuplicateSandbox, Kind, Thing},
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

/// Returns the things of one sort through which a finding leads to others, or they to it.
pub(super) fn shared(finding: &Finding, by: By) -> Vec<Thing<'_>> {
    match by {
        By::Words | By::Node => vec![Thing::Node],
        By::Sandbox => {
            let all = finding.sandboxes.iter().map(Thing::Sandbox);
            // Pairs of a pod's sandbox and the needless one that was made after it.
            if let Kind::DuplicateSandbox(DuplicateSandbox { form: Duplicate::AfterCompletion, .. }) =
                finding.kind
            {
                return all.skip(1).step_by(2).collect();
            }
            all.collect()
        }
        By::Plugin | By::Network | By::Address => {
            let mut all = finding.kind.explain().named();
            if let Kind::TeardownOutOfOrder(_) = finding.kind {
                all.extend(blind_plugins(finding).map(Thing::Plugin));
            }
            all.retain(|it| {
                matches!(
                    (by, it),
                    (By::Plugin, Thing::Plugin(_))
                        | (By::Network, Thing::Network(_))
                        | (By::Address, Thing::Address(_))
                )
            });
            all
        }
    }
}

/// Returns the sandbox of a finding about exactly one.
pub(super) fn only_sandbox(finding: &Finding) -> Option<&ContainerId> {
    let [only] = finding.sandboxes.as_slice() else { return None };
    // Duplicates are about two, even if one of them is not known.
    let is_about_two = matches!(finding.kind, Kind::DuplicateSandbox(_) | Kind::DuplicateAddress(_));
    // These are about one until there are others.
    let begins_with_one = matches!(finding.kind, Kind::CniWrongDel(_) | Kind::PhantomSandbox(_));
    let is_about_others = is_about_two || finding.kind.explain().shows_some() && !begins_with_one;
    if is_about_others { None } else { Some(only) }
}

/// Returns the plugins whose DEL had no network namespace, according to the evidence.
pub(super) fn blind_plugins(finding: &Finding) -> impl Iterator<Item = &str> {
    finding.evidence.iter().filter_map(|it| {
        let ChangeKind::CniStarted { call } = &it.event.what else { return None };
        let is_blind = call.netns.as_deref().unwrap_or_default().is_empty();
        (call.command == "DEL" && call.called_by.is_none() && is_blind).then_some(call.plugin.as_str())
    })
}
