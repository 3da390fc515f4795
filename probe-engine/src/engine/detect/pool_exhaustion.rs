//! **Rule:** a pool has no free address; or will have none within a day at the rate at which its addresses leak; or has
//! fewer than a tenth free, and some of it has leaked.
//!
//! The rate is that of three or more confirmed leaks of the last day whose history was seen, over the time since the
//! first of them, but an hour at least: a burst is no rate.
//!
//! Not flagged: a pool that living pods use well; one of several pools of a network while another one of its family has
//! free addresses (host-local takes the next); a pool that was full for a moment; one whose count leans on what may have
//! been given back among lost records.

use std::time::Duration;

use super::{
    DetectContext, Detection, Verdict,
    leaked_address::LeakedAddress,
    pool::{self, Count},
    rule::Judged,
};
use crate::model::{
    finding::{Cause, Key, Kind, PoolExhaustion, Severity},
    time::Timestamp,
};

pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Fewer are no rate.
pub(super) const LEAKS: usize = 3;
/// Pods that come and go may have all addresses for a moment.
pub(super) const MOMENT: Duration = Duration::from_secs(30);

pub(super) fn detect(ctx: &DetectContext<'_>, leaks: &Judged<LeakedAddress>, found: &mut Vec<Detection>) {
    if ctx.world.records.networks().iter().all(|network| network.pools.is_empty()) {
        return;
    }
    let mut more = Vec::new();
    let counts = pool::count(ctx.world, leaks);
    for it in &counts {
        let family = counts.iter().filter(|other| {
            other.view.network == it.view.network && other.first.is_ipv4() == it.first.is_ipv4()
        });
        let spare = |free: fn(&Count<'_>) -> u64| family.clone().map(free).fold(0, u64::saturating_add);
        more.extend(detection(
            ctx,
            it,
            &Spare {
                free: spare(|it| it.view.free),
                size: spare(|it| it.view.size),
                unsure: spare(|it| it.unsure),
            },
        ));
    }
    found.extend(more);
}

/// What all pools of a network and a family have together: one is as good as the other.
struct Spare {
    free: u64,
    size: u64,
    unsure: u64,
}

fn detection(ctx: &DetectContext<'_>, it: &Count<'_>, spare: &Spare) -> Option<Detection> {
    let left = runs_out_in(ctx, it, spare.free);
    let is_empty = spare.free == 0 && it.view.size > 0;
    let is_low = spare.free < spare.size / 10;
    let (severity, since, standing) = if is_empty {
        let standing =
            if spare.unsure > 0 { Verdict::Watched { until: None } } else { ctx.after(it.taken_at, MOMENT) };
        (Severity::Critical, it.taken_at, standing)
    } else if left.is_some_and(|left| left < DAY) || is_low && it.view.leaked > 0 {
        let confirmed = it.leaks.iter().filter(|leak| leak.is_confirmed());
        let since = confirmed.map(|leak| leak.since).max().unwrap_or(ctx.now);
        (Severity::Warning, since, Verdict::Confirmed)
    } else if is_low && it.view.leak_candidate > 0 {
        // Leaks are looked at anew when runtime or kubelet start; that alone mends nothing.
        (Severity::Warning, ctx.now, Verdict::Watched { until: None })
    } else {
        return None;
    };
    let view = &it.view;
    let kind = Kind::PoolExhaustion(PoolExhaustion {
        network: view.network.clone(),
        subnet: view.subnet,
        size: view.size,
        used: view.in_use.saturating_add(view.pending_cleanup).saturating_add(view.leak_candidate),
        leaked: view.leaked,
        free: view.free,
        runs_out_in: left,
    });
    let range = format!("{}-{}", it.first, it.last);
    Some(Detection {
        key: Key::new(kind.into_str(), &[&view.network, &range]),
        kind,
        severity,
        since,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        standing,
    })
}

/// When nothing is free any more, if it goes on leaking as it does.
fn runs_out_in(ctx: &DetectContext<'_>, it: &Count<'_>, free: u64) -> Option<Duration> {
    let from = ctx.now.saturating_sub(DAY);
    // Of a record that only turned up nobody knows when it leaked.
    let seen = it.leaks.iter().filter(|leak| leak.is_confirmed() && leak.cause != Cause::StaleRecord);
    let times: Vec<Timestamp> = seen.map(|leak| leak.since).filter(|at| *at >= from).collect();
    let first = times.iter().min().filter(|_| times.len() >= LEAKS)?;
    let over = ctx.now.since(*first).max(HOUR);
    let each = over / u32::try_from(times.len()).unwrap_or(u32::MAX);
    Some(each.saturating_mul(u32::try_from(free).unwrap_or(u32::MAX)))
}
