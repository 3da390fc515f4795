//! Joins duplicates of many pods at once, because they have one reason: a restarting runtime replaces every
//! sandbox. They are one finding with a count. Its key is that of the first duplicate.
//!
//! **Invariant:** a joined finding keeps its key and its count as long as any of its duplicates lasts,
//! whichever of its pods are forgotten first.

use std::time::Duration;

use crate::{
    engine::detect::{DetectContext, Detection, Verdict},
    model::{
        change::Finding,
        finding::{Duplicate, DuplicateSandbox, Kind, Stage},
    },
};

/// This many pods are joined if their sandboxes are replaced within [`TOGETHER`] of the first.
pub(in crate::engine::detect) const BURST: u32 = 3;
pub(in crate::engine::detect) const TOGETHER: Duration = Duration::from_secs(60);
/// At most this many sandboxes of a joined finding are shown as evidence.
const SHOWN: usize = 16;

pub(super) fn gather(
    ctx: &DetectContext<'_>,
    form: Duplicate,
    mut detections: Vec<Detection>,
    found: &mut Vec<Detection>,
) {
    detections.sort_by(|one, other| (one.since, &one.key).cmp(&(other.since, &other.key)));
    let mut open: Vec<&Finding> = ctx.open().filter(|it| is_burst(it, form)).collect();
    open.sort_by_key(|it| (it.since, &it.key));
    for before in open {
        let (of_it, others) = detections
            .into_iter()
            .partition(|it| it.since >= before.since && it.since.since(before.since) <= TOGETHER);
        detections = others;
        found.extend(burst(form, of_it, Some(before)));
    }
    let mut rest = detections;
    while let Some(first) = rest.first() {
        let end = first.since + TOGETHER;
        let others = rest.split_off(rest.partition_point(|it| it.since <= end));
        let group = std::mem::replace(&mut rest, others);
        // Duplicates that have findings of their own are not joined when one before them ends.
        if number(&group) >= BURST && group.iter().any(|it| ctx.open().all(|known| known.key != it.key)) {
            found.extend(burst(form, group, None));
        } else {
            found.extend(group);
        }
    }
}

fn is_burst(it: &Finding, wanted: Duplicate) -> bool {
    matches!(&it.kind, Kind::DuplicateSandbox(it) if it.form == wanted && it.count >= BURST)
        && it.stage != Stage::Closed
}

fn number(group: &[Detection]) -> u32 {
    u32::try_from(group.len()).unwrap_or(u32::MAX)
}

/// Makes the joined detection: the finding `before`, with the duplicates that were added since.
fn burst(form: Duplicate, group: Vec<Detection>, before: Option<&Finding>) -> Option<Detection> {
    let first = group.first()?;
    let count = number(&group);
    let known = match before.map(|it| (it, &it.kind)) {
        Some((it, Kind::DuplicateSandbox(known))) => Some((it, known.count)),
        Some(_) | None => None,
    };
    let now: Vec<_> = group.iter().flat_map(|it| it.sandboxes.clone()).take(SHOWN).collect();
    Some(Detection {
        key: before.map_or_else(|| first.key.clone(), |it| it.key.clone()),
        kind: DuplicateSandbox { form, count: known.map_or(count, |(_, before)| before.max(count)) }.into(),
        pod: None,
        sandboxes: known.filter(|(_, before)| *before > count).map_or(now, |(it, _)| it.sandboxes.clone()),
        verdict: verdict(&group, first),
        ..first.clone()
    })
}

/// Returns the joined verdict. It is confirmed if the verdict of one duplicate is, and passes when the last
/// of them passes.
fn verdict(group: &[Detection], first: &Detection) -> Verdict {
    let until = group.iter().filter_map(|it| match it.verdict {
        Verdict::Passing { until } => Some(until),
        Verdict::Watched { .. }
        | Verdict::Candidate { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Confirmed => None,
    });
    let is_sure = group.iter().any(|it| it.verdict == Verdict::Confirmed);
    match until.max() {
        _ if is_sure => Verdict::Confirmed,
        Some(until) => Verdict::Passing { until },
        None => first.verdict,
    }
}
