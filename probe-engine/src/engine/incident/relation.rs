//! Which kinds of findings lead to which others, and what both must share.
//!
//! There is a row only if the docs page of one of the two kinds, or the order of a runtime's work, says how
//! one leads to the other.

use std::net::IpAddr;

use probe_common::runtime;

use super::thing::{By, blind_plugins};
use crate::{
    engine::world::{plugin_pods::writes_network, table::sandbox::run::SIGNALLED},
    model::{
        change::Finding,
        fact::{CniCommand, NetworkFaultForm, SIGKILL},
        finding::{
            Cause, CniFailing, CniWaitForm, DaemonFailing, Duplicate, DuplicateSandbox, FindingKind as Of,
            Key, Kind, LeakedAddress, OwnerlessReservation, PoolExhaustion, StartCause, StartStep, StopStep,
            WrongDelForm,
        },
        id::Subnet,
        time::Timestamp,
    },
};

/// A row: findings of the kind `cause` lead to findings of the kind `effect`.
#[derive(Debug)]
pub(super) struct Relation {
    pub(super) cause: Of,
    pub(super) effect: Of,
    pub(super) by: By,
    /// A further condition on the cause and the effect.
    pub(super) holds: fn(&Finding, &Finding) -> bool,
    /// The effect must have begun while the cause lasted.
    pub(super) lasts: bool,
    /// How the cause led to the effect: a clause that follows the cause's summary.
    pub(super) why: &'static str,
}

/// All relations. If two rows match the same findings, the first one counts.
///
/// The effect itself must show that the cause led to it. It is not enough that both exist at the same time.
pub(super) const RELATIONS: &[Relation] = &[
    row(Of::DaemonFailing, Of::StuckStart, By::Node, "the start waits for it").while_it_lasts().when(waits_for_daemon),
    row(Of::DaemonFailing, Of::StuckStop, By::Node, "the stop waits for it").while_it_lasts().when(waits_for_daemon),
    row(Of::DaemonFailing, Of::CniFailing, By::Node, "the plugin needs it").while_it_lasts().when(is_of_plugin),
    row(Of::DaemonFailing, Of::NodeNetworkUnready, By::Node, "the plugin's pod writes the configuration")
        .when(writes_configuration),
    row(Of::NodeNetworkUnready, Of::StuckStart, By::Node, "the start waits for a network")
        .when(waits_for_network),
    row(Of::NodeNetworkUnready, Of::StuckStop, By::Node, "the runtime cannot take the network down")
        .when(waits_for_network),
    row(Of::RuntimeUnresponsive, Of::StuckStart, By::Node, "the start waits for the runtime")
        .when(|_, effect| waits_for_runtime(effect)),
    row(Of::RuntimeUnresponsive, Of::StuckStop, By::Node, "the stop waits for the runtime")
        .when(|_, effect| waits_for_runtime(effect)),
    row(
        Of::RuntimeUnresponsive,
        Of::AbandonedSandbox,
        By::Node,
        "the runtime is asked to stop the sandbox, and does not answer",
    ),
    row(Of::RuntimeUnresponsive, Of::CniSlow, By::Node, "the plugin waits for what the runtime sends it")
        .when(|_, effect| waits_for_input(effect)),
    row(Of::CniQueue, Of::CniSlow, By::Sandbox, "each call waits for the ones before it")
        .while_it_lasts()
        .when(|_, effect| may_wait_for_others(effect)),
    row(Of::CniQueue, Of::CniSlow, By::Plugin, "each call waits for the ones before it")
        .when(|_, effect| may_wait_for_others(effect)),
    row(Of::CniSlow, Of::CniFailing, By::Sandbox, SLOW).while_it_lasts().when(is_given_up),
    row(Of::CniSlow, Of::CniFailing, By::Plugin, SLOW).when(is_given_up),
    row(Of::CniSlow, Of::StuckStart, By::Sandbox, "the start waits for this call")
        .while_it_lasts()
        .when(is_slow_add),
    row(Of::CniSlow, Of::CniWrongDel, By::Sandbox, SLOW).when(is_killed_add),
    row(
        Of::PoolExhaustion,
        Of::CniFailing,
        By::Words,
        "the plugin found no free address in this range, and said so",
    )
    .when(is_out_of_addresses),
    row(Of::CniFailing, Of::StuckStop, By::Sandbox, FAILING).while_it_lasts().when(fails_del_of_stop),
    row(Of::CniFailing, Of::StuckStop, By::Plugin, FAILING).when(fails_del_of_stop),
    row(Of::CniFailing, Of::LeakedAddress, By::Sandbox, "no call of the plugin gave the address back")
        .when(fails_as_leaked),
    row(Of::CniFailing, Of::LeakedAddress, By::Plugin, "no call of the plugin gave the address back")
        .when(fails_as_leaked),
    row(
        Of::SandboxesReplaced,
        Of::DuplicateSandbox,
        By::Sandbox,
        "the new sandbox was made while the replaced one still lived",
    )
    .when(|_, effect| is_duplicate(effect, Duplicate::Concurrent)),
    row(Of::SandboxesReplaced, Of::StuckStop, By::Sandbox, "the replaced sandbox has to be stopped"),
    row(Of::SandboxesReplaced, Of::LeakedAddress, By::Sandbox, "the replaced sandbox had this address"),
    row(Of::SandboxesReplaced, Of::OrphanNetns, By::Sandbox, "the replaced sandbox had this namespace"),
    row(Of::RestartedInBulk, Of::TeardownOutOfOrder, By::Sandbox, "the same process killed pause")
        .when(has_same_killer),
    row(
        Of::DuplicateSandbox,
        Of::TeardownOutOfOrder,
        By::Sandbox,
        "nobody needed the sandbox, so nobody stopped it in order",
    )
    .when(|cause, _| !is_duplicate(cause, Duplicate::Concurrent)),
    row(Of::DuplicateSandbox, Of::LeakedAddress, By::Sandbox, "the needless sandbox had taken this address")
        .when(|cause, _| !is_duplicate(cause, Duplicate::Concurrent)),
    row(Of::DuplicateSandbox, Of::OrphanNetns, By::Sandbox, "the needless sandbox had this namespace")
        .when(|cause, _| !is_duplicate(cause, Duplicate::Concurrent)),
    row(
        Of::TeardownOutOfOrder,
        Of::LeakedAddress,
        By::Sandbox,
        "the network namespace was gone by the time of DEL, and with it what the plugin looks the address up in",
    )
    .when(|_, effect| is_leak(effect, &[Cause::DelBlind]) || is_leaked_by_blind_del(effect)),
    row(
        Of::TeardownOutOfOrder,
        Of::UnverifiedRelease,
        By::Plugin,
        "the network namespace was gone by the time of DEL, so DEL named none",
    )
    .when(|_, effect| has_blind_dels(effect)),
    row(
        Of::OrphanSandbox,
        Of::LeakedAddress,
        By::Sandbox,
        "no runtime had the sandbox on record any more, so none calls DEL",
    )
    .when(|_, effect| is_leak(effect, &[Cause::DelMissing, Cause::RuntimeEnded, Cause::StaleRecord])),
    row(
        Of::OrphanSandbox,
        Of::OrphanNetns,
        By::Sandbox,
        "no runtime had the sandbox on record any more, so none removes its namespace",
    ),
    row(Of::OrphanSandbox, Of::StuckCgroup, By::Sandbox, "its process is in the pod's cgroup")
        .when(|_, effect| may_be_populated(effect)),
    row(Of::CniWrongDel, Of::LeakedAddress, By::Sandbox, "the DEL came before the address was given")
        .when(is_given_after_del),
    row(Of::CniWrongDel, Of::OrphanNetns, By::Sandbox, "the DEL was not the last call for this namespace")
        .when(|cause, _| is_wrong_del(cause, &[WrongDelForm::AddOpen, WrongDelForm::AddKilled])),
    row(Of::CniWrongDel, Of::DuplicateAddress, By::Address, "the DEL freed an address that is in use")
        .whenever()
        .when(|cause, effect| effect.sandboxes.iter().any(|id| cause.sandboxes.contains(id))),
    row(Of::StuckStart, Of::LeakedAddress, By::Address, "the earlier plugins of the chain had given this address")
        .when(|_, effect| is_leak(effect, &[Cause::AddFailed, Cause::DelMissing, Cause::DelFailed])),
    row(Of::StuckStop, Of::LeakedAddress, By::Sandbox, "the stop of the sandbox never came to an end")
        .when(|_, effect| is_leak(effect, &[Cause::DelMissing, Cause::DelBlind, Cause::DelFailed])),
    row(Of::StuckStop, Of::OrphanNetns, By::Sandbox, "the stop of the sandbox never came to an end"),
    row(Of::StuckStop, Of::StuckCgroup, By::Sandbox, "the process that does not end is in the pod's cgroup")
        .when(|cause, effect| is_stuck_at(cause, StopStep::Containers) && may_be_populated(effect)),
    row(Of::LeakedAddress, Of::PoolExhaustion, By::Network, "the address counts as used").when(is_in_range),
    row(Of::OwnerlessReservation, Of::PoolExhaustion, By::Network, "its addresses count as used")
        .when(is_in_range),
];

const SLOW: &str = "the call was given up before it ended";
const FAILING: &str = "the runtime stops a sandbox only when DEL has succeeded";

/// Messages of IPAM plugins without a free address, in lower case: host-local, whereabouts, Calico, the
/// clouds' plugins.
const OUT_OF_ADDRESSES: [&str; 8] = [
    "no ip addresses available",
    "no addresses available",
    "no available ip",
    "no available address",
    "no free ip",
    "no free address",
    "could not allocate ip",
    "exhausted",
];

/// The kinds from causes to effects: findings of one step are in the order of time. A kind that is in no step
/// comes last.
///
/// A failed ADD can leak an address, leaks use up a pool, and an empty pool makes ADDs fail. So these three
/// are one step, and among them only an earlier finding can be the cause.
const STEPS: [&[Of]; 9] = [
    &[Of::AbandonedStore, Of::BlindSpot, Of::DaemonFailing, Of::NodeNetworkUnready, Of::RuntimeUnresponsive],
    &[Of::CniQueue],
    &[Of::CniSlow],
    &[Of::RestartedInBulk, Of::SandboxesReplaced],
    &[Of::DuplicateSandbox],
    &[
        Of::AbandonedSandbox,
        Of::CniWrongDel,
        Of::DuplicateContainer,
        Of::OrphanSandbox,
        Of::StuckStart,
        Of::TeardownOutOfOrder,
    ],
    &[Of::StuckStop],
    &[Of::OwnerlessReservation],
    &[Of::CniFailing, Of::LeakedAddress, Of::PoolExhaustion],
];

/// The step of a failing DEL, which comes before that of the stops that wait for it.
const FAILING_DEL: usize = 5;

/// Returns the sort key of a finding, which puts causes before effects: by step, then by time.
pub(super) fn order(it: &Finding) -> (usize, Timestamp, usize, &Key) {
    let kind = Of::from(&it.kind);
    let is_del = matches!(&it.kind, Kind::CniFailing(CniFailing { command: CniCommand::Del, .. }));
    let step = if is_del { Some(FAILING_DEL) } else { STEPS.iter().position(|step| step.contains(&kind)) };
    let step = step.unwrap_or(STEPS.len());
    let place = STEPS.get(step).and_then(|step| step.iter().position(|it| *it == kind));
    (step, it.since, place.unwrap_or(usize::MAX), &it.key)
}

const fn row(cause: Of, effect: Of, by: By, why: &'static str) -> Relation {
    Relation { cause, effect, by, holds: |_, _| true, lasts: !by.is_unique(), why }
}

impl Relation {
    const fn when(self, holds: fn(&Finding, &Finding) -> bool) -> Self {
        Self { holds, ..self }
    }

    /// Requires that the effect began while the cause lasted, whatever they share.
    const fn while_it_lasts(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// Allows an effect that began when the cause was over.
    const fn whenever(self) -> Self {
        Self { lasts: false, ..self }
    }
}

/// Whether a start or a stop that began while a daemon did not come up waits for that daemon: the kubelet
/// takes each step, and the runtime each one that nothing else holds up.
fn waits_for_daemon(cause: &Finding, effect: &Finding) -> bool {
    let Kind::DaemonFailing(failing) = &cause.kind else { return false };
    if !failing.plugins.is_empty() {
        return waits_for_plugin(failing, effect);
    }
    runtime::kubelets().any(|kubelet| kubelet == failing.daemon) || waits_for_runtime(effect)
}

/// Whether the calls that fail are of a plugin that needs the container.
fn is_of_plugin(cause: &Finding, effect: &Finding) -> bool {
    let Kind::DaemonFailing(failing) = &cause.kind else { return false };
    waits_for_plugin(failing, effect)
}

/// Whether the daemon is the pod of a plugin that writes the configuration, and the runtime lacks that, or
/// the plugin's executable.
fn writes_configuration(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::DaemonFailing(failing), Kind::NodeNetworkUnready(unready)) = (&cause.kind, &effect.kind)
    else {
        return false;
    };
    if unready.how == NetworkFaultForm::PluginMissing {
        return unready.plugin.as_ref().is_some_and(|plugin| failing.plugins.contains(plugin));
    }
    failing.plugins.iter().any(|plugin| writes_network(plugin))
}

/// Whether a start waits for the network, or a stop for a DEL, that one of these plugins is to make.
fn waits_for_plugin(failing: &DaemonFailing, effect: &Finding) -> bool {
    let plugin = if let Kind::StuckStart(start) = &effect.kind {
        if start.step == StartStep::Network { start.plugin.as_ref() } else { None }
    } else if let Kind::StuckStop(stop) = &effect.kind {
        if stop.exit_code.is_some() { stop.plugin.as_ref() } else { None }
    } else if let Kind::CniFailing(failing) = &effect.kind {
        Some(&failing.plugin)
    } else {
        None
    };
    plugin.is_some_and(|plugin| failing.plugins.contains(plugin))
}

/// Whether a start or a stop may wait for the runtime: no plugin runs or has failed, and no process holds it
/// up.
fn waits_for_runtime(effect: &Finding) -> bool {
    if let Kind::StuckStart(start) = &effect.kind {
        return start.cause.is_none() && (start.step != StartStep::Network || start.plugin.is_none());
    }
    let Kind::StuckStop(stop) = &effect.kind else { return false };
    stop.step != StopStep::Containers && stop.exit_code.is_none() && stop.cache_file.is_none()
}

/// Whether a start or a stop waits for the network that the runtime cannot make: it has no configuration, or
/// it does not call the plugin whose executable is missing.
fn waits_for_network(cause: &Finding, effect: &Finding) -> bool {
    let Kind::NodeNetworkUnready(unready) = &cause.kind else { return false };
    if let Kind::StuckStart(start) = &effect.kind {
        return match start.cause {
            Some(StartCause::NotConfigured) => unready.plugin.is_none(),
            Some(StartCause::PluginNotCalled) => unready.plugin.is_some() && unready.plugin == start.plugin,
            None => false,
        };
    }
    let Kind::StuckStop(stop) = &effect.kind else { return false };
    stop.step == StopStep::Del && stop.attempts == 0 && stop.cache_file.is_none()
}

/// Whether the slow call may wait for other calls: for a lock, or nobody knows for what.
fn may_wait_for_others(effect: &Finding) -> bool {
    let Kind::CniSlow(slow) = &effect.kind else { return false };
    slow.waits.as_ref().is_none_or(|it| {
        matches!(it.form, CniWaitForm::FileLock | CniWaitForm::NetworkLock | CniWaitForm::Answer)
    })
}

/// Whether the slow call waits for its configuration.
fn waits_for_input(effect: &Finding) -> bool {
    let Kind::CniSlow(slow) = &effect.kind else { return false };
    slow.waits.as_ref().is_some_and(|it| it.form == CniWaitForm::Input)
}

/// Whether calls of the same plugin and command ran as long as the slow call, and the last one was killed: a
/// call that fails at once has a reason of its own.
fn is_given_up(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::CniSlow(slow), Kind::CniFailing(failing)) = (&cause.kind, &effect.kind) else { return false };
    slow.command == failing.command.to_string()
        && slow.plugin == failing.plugin
        && failing.code == Some(SIGNALLED + SIGKILL)
        && failing.wasted >= slow.took
}

/// Whether the start waits for an ADD of the slow plugin that has begun.
fn is_slow_add(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::CniSlow(slow), Kind::StuckStart(start)) = (&cause.kind, &effect.kind) else { return false };
    slow.open
        && slow.command == "ADD"
        && start.step == StartStep::Network
        && start.cause.is_none()
        && start.plugin.as_ref() == Some(&slow.plugin)
}

fn is_killed_add(cause: &Finding, effect: &Finding) -> bool {
    let Kind::CniSlow(slow) = &cause.kind else { return false };
    slow.command == "ADD" && is_wrong_del(effect, &[WrongDelForm::AddKilled])
}

/// Whether the stop waits for a DEL of this plugin that was called for it and failed.
fn fails_del_of_stop(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::CniFailing(failing), Kind::StuckStop(stop)) = (&cause.kind, &effect.kind) else {
        return false;
    };
    failing.command == CniCommand::Del
        && stop.step == StopStep::Del
        && stop.plugin.as_ref() == Some(&failing.plugin)
        && stop.cache_file.is_none()
        && stop.attempts > 0
        && stop.exit_code.is_some()
}

fn fails_as_leaked(cause: &Finding, effect: &Finding) -> bool {
    let Kind::CniFailing(failing) = &cause.kind else { return false };
    let leaked = match failing.command {
        CniCommand::Add => Cause::AddFailed,
        CniCommand::Del => Cause::DelFailed,
    };
    is_leak(effect, &[leaked])
}

/// Whether the plugin's message says that it found no free address, and names an address of an exhausted
/// range.
fn is_out_of_addresses(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::PoolExhaustion(pool), Kind::CniFailing(failing)) = (&cause.kind, &effect.kind) else {
        return false;
    };
    let text = failing.message.as_ref().and_then(|it| it.text.as_deref()).unwrap_or_default();
    let parts = text.split(|letter: char| !letter.is_ascii_hexdigit() && !matches!(letter, '.' | ':'));
    let mut addresses = parts.filter_map(|part| part.trim_end_matches([':', '.']).parse::<IpAddr>().ok());
    let said = text.to_ascii_lowercase();
    failing.command == CniCommand::Add
        && pool.free == 0
        && OUT_OF_ADDRESSES.iter().any(|words| said.contains(words))
        && addresses.any(|it| contains(pool.subnet, it))
}

fn is_in_range(cause: &Finding, effect: &Finding) -> bool {
    let Kind::PoolExhaustion(PoolExhaustion { subnet, .. }) = &effect.kind else { return false };
    if let Kind::LeakedAddress(LeakedAddress { address, many, .. }) = &cause.kind {
        let mut addresses = many.iter().flat_map(|many| &many.first);
        return contains(*subnet, *address) || addresses.any(|it| contains(*subnet, *it));
    }
    let Kind::OwnerlessReservation(OwnerlessReservation { first, .. }) = &cause.kind else { return false };
    first.iter().any(|it| contains(*subnet, *it))
}

fn is_leak(it: &Finding, causes: &[Cause]) -> bool {
    matches!(&it.kind, Kind::LeakedAddress(leaked) if causes.contains(&leaked.cause))
}

/// Whether the address leaked because its DEL failed, and a DEL had no namespace.
fn is_leaked_by_blind_del(it: &Finding) -> bool {
    is_leak(it, &[Cause::DelFailed]) && blind_plugins(it).next().is_some()
}

/// Whether the address of an interface is still held although its DEL succeeded, because that DEL came before
/// the ADD had ended.
fn is_given_after_del(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::CniWrongDel(wrong), Kind::LeakedAddress(leaked)) = (&cause.kind, &effect.kind) else {
        return false;
    };
    is_wrong_del(cause, &[WrongDelForm::AddOpen, WrongDelForm::AddKilled])
        && leaked.cause == Cause::StaleRecord
        && leaked.ifname == wrong.ifname
}

fn is_wrong_del(it: &Finding, forms: &[WrongDelForm]) -> bool {
    matches!(&it.kind, Kind::CniWrongDel(wrong) if forms.contains(&wrong.how))
}

fn is_stuck_at(it: &Finding, step: StopStep) -> bool {
    matches!(&it.kind, Kind::StuckStop(stop) if stop.step == step)
}

/// Whether a process may be in the cgroup that remains.
fn may_be_populated(it: &Finding) -> bool {
    matches!(&it.kind, Kind::StuckCgroup(cgroup) if cgroup.populated != Some(false))
}

fn has_same_killer(cause: &Finding, effect: &Finding) -> bool {
    let (Kind::RestartedInBulk(bulk), Kind::TeardownOutOfOrder(teardown)) = (&cause.kind, &effect.kind)
    else {
        return false;
    };
    bulk.killer.is_some() && bulk.killer == teardown.killer
}

fn has_blind_dels(it: &Finding) -> bool {
    matches!(&it.kind, Kind::UnverifiedRelease(release) if release.count > release.without_del)
}

fn is_duplicate(it: &Finding, form: Duplicate) -> bool {
    matches!(&it.kind, Kind::DuplicateSandbox(DuplicateSandbox { form: it, .. }) if *it == form)
}

fn contains(subnet: Subnet, address: IpAddr) -> bool {
    match (subnet.address, address) {
        (IpAddr::V4(net), IpAddr::V4(it)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(subnet.prefix.min(32))).unwrap_or(0);
            net.to_bits() & mask == it.to_bits() & mask
        }
        (IpAddr::V6(net), IpAddr::V6(it)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(subnet.prefix.min(128))).unwrap_or(0);
            net.to_bits() & mask == it.to_bits() & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}
