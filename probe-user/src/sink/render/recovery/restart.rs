//! The words for a restart of a runtime or of the kubelet alone, and the rows for several restarts.

use std::{collections::BTreeSet, time::Duration};

use super::{
    less_network, name, names, span,
    summary::{TableRow, together},
    wall,
};
use crate::{
    engine::boot::{
        report::NodeBoot,
        restart::{RestartStatistics, numbers, statistics},
    },
    model::recovery::{Calls, DaemonEnd, HeldPod, Pod, Recovery, Restart, RestartClose},
    sink::render::text::{ended, named},
    words::{count::counted, name::signal_number, span::span as words},
};

/// A restart, and the boot in which it happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) boot: NodeBoot<'a>,
    pub(crate) restart: &'a Restart,
}

/// The restarts in these boots. The last boot of each node still runs. In an earlier boot, a daemon that had
/// not started again by its end was ended by the node's shutdown, unless it had been stopped long before;
/// such a restart is left out.
#[must_use]
pub(crate) fn all<'a>(boots: &[NodeBoot<'a>]) -> Vec<Placed<'a>> {
    let mut later = BTreeSet::new();
    let mut all = Vec::new();
    for boot in boots.iter().rev() {
        let goes_on = later.insert(boot.node);
        let mut restarts = boot.recovery.restarts.all();
        restarts.retain(|it| goes_on || it.close.is_some() || it.has_started());
        all.extend(restarts.into_iter().rev().map(|restart| Placed { boot: *boot, restart }));
    }
    all.reverse();
    all
}

impl Placed<'_> {
    /// When the restart began, on the wall clock; nanoseconds since the epoch.
    #[must_use]
    pub(crate) fn wall_ns(&self) -> Option<i64> {
        let boot = self.boot.recovery.boot.as_ref()?;
        Some(boot.boot_wall_ns.saturating_add_unsigned(self.restart.zero().0))
    }

    /// When the restart began, and a star if its times count from the start of the new process.
    #[must_use]
    pub(crate) fn title(&self) -> String {
        let began = self.wall_ns().map_or_else(|| "unknown".to_owned(), wall);
        if self.restart.ended.is_some() { began } else { format!("{began} *") }
    }
}

/// A row for each restart; then the mean and the percentiles of each program that restarted more than once.
#[must_use]
pub(crate) fn table(restarts: &[Placed<'_>]) -> Vec<TableRow> {
    let each = restarts.iter().map(|it| {
        let about = it.restart.comm.clone();
        TableRow { about, ..TableRow::new(it.title(), &numbers(it.restart)) }
    });
    let programs = statistics(restarts.iter().map(|it| it.restart)).into_iter();
    let programs = programs.flat_map(|it| together(&format!("{}: ", it.comm), &it.average, &it.spread));
    each.chain(programs).collect()
}

/// How many restarts the rows of the mean and the percentiles count, unless it is all of them.
#[must_use]
pub(crate) fn composition(it: &RestartStatistics<'_>) -> Option<String> {
    let counts = it.average.boots;
    let others = match it.all.saturating_sub(counts) {
        0 => return None,
        1 if it.all == 1 => "it is not complete, or its beginning was not seen",
        1 => "the other one is not complete, or its beginning was not seen",
        _ => "the others are not complete, or their beginning was not seen",
    };
    let all = counted(u64::try_from(it.all).unwrap_or(u64::MAX), "restart");
    let count = if counts == 1 || it.all == 1 { "counts" } else { "count" };
    Some(format!("{}: {counts} of {all} {count}; {others}", it.comm))
}

/// Why the restart is not whole, a word each.
#[must_use]
pub(crate) fn marks(restart: &Restart) -> Vec<&'static str> {
    let marks = [
        (restart.ended.is_none(), "end not seen"),
        (restart.close != Some(RestartClose::AsBefore), "not complete"),
        (!restart.less_network.is_empty(), "less network"),
    ];
    marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect()
}

/// Notes beside the numbers, a sentence each.
#[must_use]
pub(crate) fn notes(restart: &Restart) -> Vec<String> {
    let mut lines = vec![end(restart)];
    lines.extend(again(restart));
    lines.extend(version(restart));
    let (replaced, waited): (Vec<&HeldPod>, Vec<&HeldPod>) = restart.held.iter().partition(|it| it.replaced);
    lines.extend(held("waited", &waited));
    lines.extend(held("got another sandbox with nothing wrong in the one before", &replaced));
    if restart.held_left_out > 0 {
        let more = counted(restart.held_left_out.into(), "pod");
        lines.push(format!("truncated: at least {more} waited beside those that are kept"));
    }
    lines.extend(calls(restart.calls));
    lines.extend(less_network(&restart.less_network));
    lines.push(close(restart));
    lines
}

/// How the process ended, and who ended it.
fn end(restart: &Restart) -> String {
    let was = &restart.was;
    match &restart.ended {
        None => format!("the end of {was} was not seen: times count from the start of the new process"),
        Some(it) => {
            let ran = words(it.at.since(restart.ran_since));
            format!("{was} ended after {ran}: {}", ended_by(it))
        }
    }
}

fn ended_by(it: &DaemonEnd) -> String {
    let told = it.told.as_ref().filter(|told| it.end.signal != Some(told.signal)).map(|told| {
        let signal =
            signal_number(told.signal).map_or_else(|| format!("signal {}", told.signal), str::to_owned);
        format!(", after {signal} from {}", named(&told.by))
    });
    ended(&it.end) + &told.unwrap_or_default()
}

fn again(restart: &Restart) -> Option<String> {
    let last = restart.ended_again.as_ref().map(|it| format!(": {}", ended_by(it)));
    let times = match (restart.again, &last) {
        (1, _) => "once".to_owned(),
        (times, None) => format!("{times} times"),
        (times, Some(_)) => format!("{times} times, the last time"),
    };
    (restart.again > 0).then(|| format!("it began and ended again {times}{}", last.unwrap_or_default()))
}

fn version(restart: &Restart) -> Option<String> {
    let is = restart.is.as_ref()?;
    Some(if *is == restart.was { format!("with {is} as before") } else { format!("with {is} instead") })
}

fn held(what: &str, pods: &[&HeldPod]) -> Option<String> {
    let longest: Option<(Duration, &HeldPod)> =
        pods.iter().filter_map(|it| Some((it.until?.since(it.since), *it))).max_by_key(|(took, _)| *took);
    let longest = longest.map(|(took, it)| format!(", the longest {} ({})", span(took), name(&it.pod)));
    let open: Vec<Pod> = pods.iter().filter(|it| it.until.is_none()).map(|it| it.pod.clone()).collect();
    let open = (!open.is_empty()).then(|| format!("; not through: {}", names(&open)));
    (!pods.is_empty()).then(|| {
        let count = u64::try_from(pods.len()).unwrap_or(u64::MAX);
        format!("{} {what}{}{}", counted(count, "pod"), longest.unwrap_or_default(), open.unwrap_or_default())
    })
}

fn calls(calls: Calls) -> Option<String> {
    let Calls { cut_off, killed, failed, hung } = calls;
    let parts = [
        (cut_off, "under way when the runtime ended"),
        (killed, "killed"),
        (failed, "failed"),
        (hung, "hung"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("CNI calls: {}", parts.join(", ")))
}

fn close(restart: &Restart) -> String {
    if let (None, None, Some(last)) = (restart.close, restart.started, &restart.ended_again) {
        let so_far = words(last.at.since(restart.zero()));
        return format!("it does not stay up: the last of these ended {so_far} after the first");
    }
    let text = match restart.close {
        Some(RestartClose::AsBefore) if restart.held.is_empty() => "as before: no pod waited for it",
        Some(RestartClose::AsBefore) => "as before: no pod waits any more",
        Some(RestartClose::Waiting) => "not as before: pods still waited after 30 minutes",
        Some(RestartClose::NotReady) => {
            "nothing showed that it was ready again: whether the node is as before is not known"
        }
        Some(RestartClose::Stopped) => "it did not start again within 30 minutes: it was stopped",
        None if restart.started.is_none() => "it has not started again yet",
        None => "it goes on: more may come",
    };
    text.to_owned()
}

/// How often each program restarted in a boot, if any did.
#[must_use]
pub(crate) fn since_boot(recovery: &Recovery) -> Option<String> {
    let counts = recovery.restarts.counts();
    let each: Vec<String> = counts
        .iter()
        .map(|(comm, count)| match count {
            1 => format!("{comm} once"),
            count => format!("{comm} {count} times"),
        })
        .collect();
    (!each.is_empty()).then(|| format!("restarted alone since: {}", each.join(", ")))
}
