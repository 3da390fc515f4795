//! When the words of the runtime and the kubelet are needed: shortly before a finding about a pod, or about
//! one of them, is confirmed, so that the finding has them at once, and again while it is open. What a slow
//! call waits for is looked at in the same way.

use std::time::Duration;

use super::{Detection, Verdict};
use crate::{
    engine::world::{World, table::failing::FAILED},
    model::{
        finding::{DaemonFailing, Kind},
        id::TaskKey,
        time::Timestamp,
    },
};

/// The logs are searched within this time, if they can be read.
pub(super) const LEAD: Duration = Duration::from_secs(15);

/// How often they are searched again while the finding is open.
pub(super) const AGAIN: Duration = Duration::from_secs(5 * 60);
/// How soon they are searched again if the pod waits for something else now.
const SOON: Duration = Duration::from_secs(60);

/// A call is looked at this long before it is slow.
const LOOK: Duration = Duration::from_secs(1);

/// How soon it is looked at again if that showed nothing.
const UNSEEN: Duration = Duration::from_secs(5);

/// A detection that is judged again sooner than this after its begin may have further to go to its limit.
const LIMIT: Duration = Duration::from_secs(100);

/// What the words are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum About {
    /// The number of a pod's row, and its container whose own log is searched too.
    Pod(u64, Option<String>),
    /// The name of a daemon's program.
    Daemon(String),
    /// What the call of this process waits for.
    Call(TaskKey),
}

/// Words that a detection needs.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Need {
    pub(in crate::engine) about: About,
    /// Since when it waits.
    pub(in crate::engine) since: Timestamp,
    pub(in crate::engine) due_at: Timestamp,
}

/// Returns the words that a detection needs next.
pub(super) fn need(world: &World, it: &Detection) -> Option<Need> {
    if let Kind::DaemonFailing(DaemonFailing { daemon, lasted, count, .. }) = &it.kind {
        let (about, words) = if let Some(pod) = &it.pod {
            let pod = world.pods.by_uid(pod.uid.as_ref()?)?;
            let words = world.pods.get(&pod)?.words.as_ref().filter(|words| words.since >= it.since);
            (About::Pod(pod, Some(daemon.clone())), words)
        } else {
            (About::Daemon(daemon.clone()), world.failing.get(daemon)?.words.as_ref())
        };
        let failed_at = it.since + *lasted;
        let due_at = match words {
            None => it.since,
            // The log may be written late.
            Some(words) if words.said.is_empty() && *count >= FAILED && words.asked_at < failed_at + LEAD => {
                words.asked_at + LEAD
            }
            Some(words) if words.asked_at < failed_at + LEAD => words.asked_at + AGAIN,
            // It has said nothing since.
            Some(_) => return None,
        };
        return Some(Need { about, since: it.since, due_at });
    }
    if let Some(key) = it.call {
        let due_at = match &world.calls.get(&key)?.looked {
            None => it.since.max(it.verdict.due_at().unwrap_or_default()).saturating_sub(LOOK),
            // The answer is there when it is judged again.
            Some(looked) if looked.waits.is_none() => looked.at + UNSEEN,
            Some(looked) => looked.at + SOON,
        };
        return Some(Need { about: About::Call(key), since: it.since, due_at });
    }
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
    Some(Need { about: About::Pod(pod, None), since: it.since, due_at })
}
