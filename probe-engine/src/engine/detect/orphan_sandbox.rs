//! **Rule:** the process that holds a sandbox, or its shim, lives, although no runtime has the sandbox, or any other of
//! its pod, on record any more.
//!
//! Not flagged: a sandbox that is being made (its record may come only after its network, however long that takes); a
//! pod that has another sandbox on record (`duplicate_sandbox` tells of that); anything while a runtime's records cannot
//! be read whole, or between a gap and the listing that closes it.

use std::{cell::OnceCell, collections::BTreeMap};

use probe_common::runtime::Helper;

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::{
        attachment::Attachment,
        process::{Process, State},
        record::{Kept, pods::PodsKept},
        sandbox,
        sandbox::Sandbox,
    },
    model::{
        change,
        fact::List,
        finding::{Key, Kind, Severity},
        id::ContainerId,
    },
};

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let forgotten: Vec<&Sandbox> =
        ctx.world.sandboxes.all().filter(|row| row.ending.forgotten_at.is_some()).collect();
    if forgotten.is_empty() {
        return;
    }
    let is_monitor = |row: &&Process| row.state == State::Running && Helper::is_monitor(&row.comm);
    let monitors = ctx.world.processes.values().filter(is_monitor);
    let monitors: BTreeMap<&ContainerId, &Process> =
        monitors.filter_map(|row| Some((row.about.as_ref()?, row))).collect();
    let pods = OnceCell::new();
    for row in forgotten {
        if let Some(process) = pause(ctx, &row.id).or_else(|| monitors.get(&row.id).copied()) {
            found.extend(orphan(ctx, row, process, &pods));
        }
    }
}

fn pause<'a>(ctx: &DetectContext<'a>, id: &ContainerId) -> Option<&'a Process> {
    let key = ctx.world.containers.get(id)?.process()?;
    ctx.world.processes.get(key).filter(|row| row.state == State::Running)
}

fn orphan<'a>(
    ctx: &DetectContext<'a>,
    row: &Sandbox,
    process: &Process,
    pods: &OnceCell<PodsKept<'a>>,
) -> Option<Detection> {
    let since = row.ending.forgotten_at?.max(row.first_at);
    let being_made = ctx.world.sandboxes.get(&row.id).is_some_and(|row| row.state == sandbox::State::Created)
        || ctx.world.attachments_of(&row.id).any(Attachment::is_adding);
    if being_made {
        return None;
    }
    let standing = match (ctx.kept(&row.id), ctx.pod_kept(pods, row.told.pod.uid.as_ref()?)) {
        (Kept::Yes, _) | (_, Kept::Yes) => return None,
        (Kept::Unknown, _) | (_, Kept::Unknown) => Verdict::Unsure,
        _ if ctx.world.is_gapped(List::Processes) => Verdict::Unsure,
        (Kept::No { at }, Kept::No { .. }) => ctx.left_over(since, at, process.found_at)?,
    };
    let it = change::Process { key: process.key, parent: process.parent, comm: process.comm.clone() };
    let kind = Kind::OrphanSandbox { process: it };
    Some(Detection {
        key: Key::new(kind.into_str(), &[row.id.as_str()]),
        kind,
        severity: Severity::Warning,
        since,
        pod: Some(row.told.pod.clone()),
        sandboxes: vec![row.id.clone()],
        gapped: row.gapped,
        standing,
    })
}
