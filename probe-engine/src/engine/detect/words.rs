//! When the words of the runtime and the kubelet about a pod are needed: shortly before a finding about it is
//! confirmed, so that the finding has them at once, and again while it is open.

use std::time::Duration;

use super::{Detection, Verdict};
use crate::{
    engine::world::World,
    model::{finding::Kind, time::Timestamp},
};

/// The logs are searched within this time, if they can be read.
pub(super) const LEAD: Duration = Duration::from_secs(15);

/// How often they are searched again while the finding is open.
pub(super) const AGAIN: Duration = Duration::from_secs(5 * 60);
/// How soon they are searched again if the pod waits for something else now.
const SOON: Duration = Duration::from_secs(60);

/// A detection that is judged again sooner than this after its begin may have further to go to its limit.
const LIMIT: Duration = Duration::from_secs(100);

/// A pod whose words a detection needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Need {
    /// The number of the pod's row.
    pub(in crate::engine) pod: u64,
    /// Since when it waits.
    pub(in crate::engine) since: Timestamp,
    pub(in crate::engine) due_at: Timestamp,
}

/// Returns the pod whose words a detection needs next.
pub(super) fn need(world: &World, it: &Detection) -> Option<Need> {
    if !matches!(it.kind, Kind::StuckStart(_) | Kind::StuckStop(_)) {
        return None;
    }
    let pod = world.pods.by_uid(it.pod.as_ref()?.uid.as_ref()?)?;
    let ready = match it.verdict {
        Verdict::Watched { until: Some(until) } if until >= it.since + LIMIT => until.saturating_sub(LEAD),
        Verdict::Confirmed | Verdict::Passing { .. } => it.since,
        Verdict::Watched { .. }
        | Verdict::Candidate { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted => return None,
    };
    let due_at = match &world.pods.get(&pod)?.words {
        None => ready,
        // Another finding about the pod may be younger, and has asked.
        Some(words) if words.since >= it.since => ready.max(words.asked_at + AGAIN),
        Some(words) => ready.max(words.asked_at + SOON),
    };
    Some(Need { pod, since: it.since, due_at })
}
