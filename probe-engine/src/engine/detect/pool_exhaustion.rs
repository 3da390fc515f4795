//! **Rule:** a pool has no free address; or at the rate at which its addresses leak it will have none within
//! a day; or fewer than a tenth of its addresses are free and some have leaked.
//!
//! The rate is the number of confirmed leaks of the last day whose history the agent saw, at least three,
//! divided by the time since the first of them, at least an hour: a burst of leaks gives no high rate.
//!
//! Not flagged: a pool that running pods have nearly filled; one of several pools of a network while another
//! one of the same address family has free addresses (host-local takes the next); a pool that was full for a
//! moment; a pool whose count depends on an address that may have been freed while records were lost, or
//! whose store cannot be read whole and does not show it.

use std::{fmt::Write as _, time::Duration};

use super::{
    DetectContext, Detection, Verdict,
    pool::{PoolCount, Pools},
};
use crate::{
    model::{
        finding::{Cause, Explain, PoolExhaustion, Severity, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{escape::escaped, shell::lines, span::span},
};

pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Fewer leaks give no rate.
pub(super) const LEAKS: usize = 3;
/// If less than this part of a full pool was lost (a quarter), that alone does not explain why it is full.
const FEW: u64 = 4;
/// Pods that start and stop may use all addresses for this long.
pub(super) const MOMENT: Duration = Duration::from_secs(30);

pub(super) fn detect(ctx: &DetectContext<'_>, pools: &Pools, found: &mut Vec<Detection>) {
    for it in pools.iter() {
        let mut together = Together { free: 0, size: 0, unsure: 0 };
        for other in pools.iter() {
            if other.network == it.network && other.pool.first.is_ipv4() == it.pool.first.is_ipv4() {
                together.free = together.free.saturating_add(other.free_addresses());
                together.size = together.size.saturating_add(other.pool.size);
                together.unsure = together.unsure.saturating_add(other.unsure);
            }
        }
        found.extend(detection(ctx, it, &together));
    }
}

/// All pools of one network and one address family. The plugin uses them in turn.
struct Together {
    free: u64,
    size: u64,
    unsure: u64,
}

fn detection(ctx: &DetectContext<'_>, it: &PoolCount, together: &Together) -> Option<Detection> {
    let view = it.view();
    let left = runs_out_in(ctx, it, together.free);
    let is_empty = together.free == 0 && view.size > 0;
    let is_low = together.free < together.size / 10;
    let (severity, since, verdict) = if is_empty {
        let verdict = if together.unsure > 0 {
            Verdict::Watched { until: None }
        } else {
            ctx.after(it.taken_at(), MOMENT)
        };
        (Severity::Critical, it.taken_at(), verdict)
    } else if left.is_some_and(|left| left < DAY) || is_low && view.leaked > 0 {
        let confirmed = it.leaks.iter().filter(|leak| leak.is_confirmed);
        let since = confirmed.map(|leak| leak.since).max().unwrap_or(ctx.now);
        (Severity::Warning, since, Verdict::Confirmed)
    } else if is_low && view.leak_candidate > 0 {
        // The grace period of a leak begins again when the runtime or the kubelet starts. That alone does not
        // close the finding.
        (Severity::Warning, ctx.now, Verdict::Watched { until: None })
    } else {
        return None;
    };
    let kind = PoolExhaustion {
        network: it.network.clone(),
        subnet: view.subnet,
        size: view.size,
        used: view.in_use.saturating_add(view.pending_cleanup).saturating_add(view.leak_candidate),
        ownerless: it.ownerless(),
        leaked: view.leaked,
        free: view.free,
        runs_out_in: left,
    };
    let range = format!("{}-{}", it.pool.first, it.pool.last);
    Some(Detection::new(kind, &[&it.network, &range], severity, since, verdict))
}

/// Returns how long until no address is free, if addresses leak at this rate.
fn runs_out_in(ctx: &DetectContext<'_>, it: &PoolCount, free: u64) -> Option<Duration> {
    let from = ctx.now.saturating_sub(DAY);
    // The time at which a `stale_record` leaked is not known.
    let seen = it.leaks.iter().filter(|leak| leak.is_confirmed && leak.cause != Cause::StaleRecord);
    let times: Vec<Timestamp> = seen.map(|leak| leak.since).filter(|at| *at >= from).collect();
    if times.len() < LEAKS {
        return None;
    }
    let over = ctx.now.since(*times.iter().min()?).max(HOUR);
    let each = over / u32::try_from(times.len()).unwrap_or(u32::MAX);
    Some(each.saturating_mul(u32::try_from(free).unwrap_or(u32::MAX)))
}

impl Explain for PoolExhaustion {
    fn summary(&self) -> String {
        let Self { network, subnet, size, used, leaked, free, runs_out_in, .. } = self;
        let mut text =
            format!("{} {subnet}: {used} used, {leaked} leaked, {free} of {size} free", escaped(network));
        if *free > 0
            && let Some(left) = runs_out_in
        {
            _ = write!(text, ", empty in {} at this rate", span(*left));
        }
        text
    }

    fn cause(&self) -> &'static str {
        match (self.free == 0, self.leaked > 0, self.ownerless > 0) {
            (true, true, _) => {
                "No address of the range is free, and some have leaked: no DEL frees these. Each ADD fails, unless the network \
                 has another range with free addresses."
            }
            (true, false, true) => {
                "No address of the range is free, and the store names no sandbox for some: no DEL frees these. Each ADD fails, \
                 unless the network has another range with free addresses."
            }
            (true, false, false) => {
                "No address of the range is free, and none of them is known to have leaked. Each ADD fails, unless the network \
                 has another range with free addresses."
            }
            (false, ..) => {
                "Addresses of the range leak, and no DEL frees these. ADD succeeds until none is free."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let script = "sandprobe leaks --repair-script > free.sh";
        let mut all = if self.leaked > 0 {
            lines(&[
                "# This writes a script that frees the leaked addresses, each after a check of its own. Read it before you run it.",
                script,
            ])
        } else if self.ownerless > 0 {
            lines(&[
                &format!(
                    "# {} of the addresses have a file that names no sandbox. If nobody reserved them on purpose,",
                    self.ownerless
                ),
                "# this writes a script that frees them. Read it before you run it.",
                "sandprobe findings --kind ownerless_reservation",
                script,
            ])
        } else {
            lines(&[
                "# A leak is not known while the runtime or the kubelet is down, and in the first half minute after. Look again:",
                "sandprobe leaks",
            ])
        };
        let lost = self.leaked.saturating_add(self.ownerless);
        if self.free == 0 && lost.saturating_mul(FEW) < self.size {
            all.extend(lines(&[
                &format!(
                    "# Apart from leaks, {} addresses, and those of the network's other ranges, may be too few for the pods that the",
                    self.size
                ),
                "# kubelet admits. Compare PODS:",
                "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.status.allocatable.pods",
                "# Lower maxPods in the kubelet's configuration below their sum, or enlarge the range: host-local's \"ranges\" or \"subnet\"",
                "# in the network's configuration. flannel takes the node's pod CIDR: remove the node, and add it with a larger one.",
            ]));
        }
        all
    }

    fn forget_numbers(&mut self) {
        (self.used, self.ownerless, self.leaked) = (0, 0, 0);
        (self.free, self.runs_out_in) = (0, None);
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Network(&self.network)]
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("the addresses of the pool that are in use".to_owned())
    }
}
