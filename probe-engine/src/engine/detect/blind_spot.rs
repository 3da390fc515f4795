//! **Rule:** the agent cannot see something on which verdicts depend: a kernel signal that no mechanism
//! reports; records, or the state of the previous agent, that were lost in the last ten minutes; a store
//! that the agent may not ask; a store, a runtime's records or a file of libcni's cache that could not be
//! read; a runtime whose list could not be read over CRI; a file whose reading hangs; network namespaces
//! whose listing was incomplete; a kubelet that was not found although there are pods; or so many open
//! findings that further ones are left out.
//!
//! Not flagged: a signal that is seen by a worse mechanism than the best one (`doctor` says what that costs);
//! a signal without any report of how it is seen, as in a scan, which has no hooks; a store or a runtime that
//! does not exist; missing runtime records while no sandbox is known, as on a node that only runs Docker's
//! containers; a file of libcni's cache that could not be read once, since libcni may have been writing it; a
//! kubelet or a runtime that restarts; a runtime that answers nothing (`runtime_unresponsive`) or has ended
//! (`daemon_failing`, if the node needs it); a node without pods of a kubelet.

use std::{collections::BTreeMap, time::Duration};

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::{lookup, table::attachment::LATELY},
    model::{
        fact::{Answer, List, Signal, StoreAnswer},
        finding::{Blind, BlindSpot, Explain, FindingKind, Key, Severity, plural},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{UNPRINTABLE, lines, quoted},
    },
};

/// By then the files that are read together with the configuration have been read.
pub(super) const READ: Duration = Duration::from_secs(10);

/// By then a kubelet that restarts, or is replaced by another version, runs again.
pub(super) const KUBELET: Duration = Duration::from_secs(5 * 60);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    signals(ctx, found);
    let losses = ctx.world.coverage.losses.as_ref();
    found.extend(losses.filter(|it| it.count > 0 && ctx.now < it.last_at + LATELY).map(|it| {
        let verdict = Verdict::Passing { until: it.last_at + LATELY };
        let spot = BlindSpot::of(Blind::Lost { count: it.count });
        Detection::new(spot, &["lost"], Severity::Warning, it.since, verdict)
    }));
    let [away, state] = losses.map_or([None; 2], |it| [it.away, it.state]);
    for (missed, word, spot) in [(away, "no_agent", Blind::NoAgent), (state, "state", Blind::State)] {
        found.extend(missed.filter(|(_, until)| ctx.now < *until + LATELY).map(|(since, until)| {
            let verdict = Verdict::Passing { until: until + LATELY };
            Detection::new(BlindSpot::of(spot), &[word], Severity::Info, since, verdict)
        }));
    }
    for (path, since) in &ctx.world.coverage.hanging {
        let spot = BlindSpot::of(Blind::File { path: path.clone() });
        found.push(Detection::new(spot, &["file", path], Severity::Warning, *since, Verdict::Confirmed));
    }
    let records = &ctx.world.records;
    for (path, (at, read)) in records.stores.iter().filter(|(_, (_, read))| !read.complete) {
        let spot = BlindSpot::of(Blind::Store { path: read.store.path.clone() });
        found.push(Detection::new(spot, &["store", path], Severity::Info, *at, Verdict::Confirmed));
    }
    for (path, answer) in &records.links {
        if let (StoreAnswer::Refused { right }, Some((at, _))) = (answer, records.stores.get(path)) {
            let spot = BlindSpot::of(Blind::Right { right: right.clone() });
            found.push(Detection::new(spot, &["right", path], Severity::Warning, *at, Verdict::Confirmed));
        }
    }
    for (place, row) in records.runtimes.iter().filter(|(_, row)| !row.complete || row.unread > 0) {
        // `runtime_unresponsive` reports a runtime that answers nothing.
        if hangs(ctx, place) {
            continue;
        }
        let spot = BlindSpot::of(Blind::Runtime { place: Some(place.clone()) });
        let key = ["runtime", place];
        let verdict = after_start(ctx, row.read_at).unwrap_or(Verdict::Confirmed);
        found.push(Detection::new(spot, &key, Severity::Info, row.read_at, verdict));
    }
    silent(ctx, found);
    found.extend(cache(ctx));
    // Only an incomplete list of network namespaces disables a rule. With other incomplete lists, no rule
    // concludes that something is absent.
    if let Some(at) = ctx.world.lists.partial.get(&List::Netns) {
        let spot = BlindSpot::of(Blind::Listing { list: List::Netns });
        found.push(Detection::new(spot, &["listing", "netns"], Severity::Info, *at, Verdict::Confirmed));
    }
    if let Some(at) = lookup::daemons::kubelet_missing_since(ctx.world) {
        let spot = BlindSpot::of(Blind::Kubelet);
        let ready = ctx.awake(at) + KUBELET;
        let is_ready = ctx.now >= ready;
        let verdict = if is_ready { Verdict::Confirmed } else { Verdict::Watched { until: Some(ready) } };
        found.push(Detection::new(spot, &["kubelet"], Severity::Info, at, verdict));
    }
    if let Some((since, at, turned_at)) = unread_since(ctx) {
        let spot = BlindSpot::of(Blind::Runtime { place: None });
        let ready = ctx.awake(turned_at) + READ;
        let verdict = after_start(ctx, at).unwrap_or_else(|| ctx.after(since.max(ready), READ));
        found.push(Detection::new(spot, &["runtime"], Severity::Info, since, verdict));
    }
}

/// Returns the verdict on records of a runtime that were last read when one had just started or ended: it may
/// not have its records open yet, nor answer.
fn after_start(ctx: &DetectContext<'_>, read_at: Timestamp) -> Option<Verdict> {
    let ready = ctx.awake(lookup::daemons::runtimes_turned_at(ctx.world)?) + READ;
    if ctx.now < ready {
        Some(Verdict::Watched { until: Some(ready) })
    } else if read_at < ready {
        Some(Verdict::Unverified)
    } else {
        None
    }
}

/// Reports that findings of these kinds are left out, because too many are open.
pub(super) fn left_out(kinds: &BTreeMap<FindingKind, u64>, now: Timestamp) -> Detection {
    let spot = Blind::LeftOut { count: kinds.values().sum() };
    let spot = BlindSpot { spot, weaker: kinds.keys().copied().collect() };
    Detection::keyed(left_out_key(), spot, Severity::Warning, now, Verdict::Confirmed)
}

pub(super) fn left_out_key() -> Key {
    Key::new(FindingKind::BlindSpot.into(), &["left_out"])
}

/// Reports the runtimes whose lists could not be read. `runtime_unresponsive` reports those that answer
/// nothing.
fn silent(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let is_listed = !ctx.world.lists.partial.contains_key(&List::Processes);
    for row in ctx.world.beliefs.runtimes().filter(|row| !row.answers() && row.hang.is_none()) {
        let started_at = lookup::daemons::serving_since(ctx.world, &row.socket);
        // It does not run, so it has no list. `daemon_failing` reports it if the node needs it, except the
        // end of a server beside its runtime (cri-dockerd).
        let is_reported = lookup::daemons::is_runtime_itself(&row.socket);
        if is_reported && row.answer == Answer::Gone && started_at.is_none() && is_listed {
            continue;
        }
        let ready = ctx.awake(started_at.map_or(row.answer_since, |at| at.max(row.answer_since))) + READ;
        let is_ready = ctx.now >= ready;
        let verdict = if is_ready { Verdict::Confirmed } else { Verdict::Watched { until: Some(ready) } };
        let spot = BlindSpot::of(Blind::Cri { socket: row.socket.clone() });
        let key = ["cri", &row.socket];
        found.push(Detection::new(spot, &key, Severity::Info, row.answer_since, verdict));
    }
}

/// Whether a runtime answers nothing at this socket.
fn hangs(ctx: &DetectContext<'_>, socket: &str) -> bool {
    ctx.world.beliefs.runtimes().any(|row| row.hang.is_some() && row.socket == socket)
}

/// Reports all files of libcni's cache that cannot be read as one finding: after a power cut there may be
/// many.
fn cache(ctx: &DetectContext<'_>) -> Option<Detection> {
    let all = &ctx.world.records.unread;
    let lasting = all.iter().filter(|(_, it)| it.read_at >= it.since + READ).collect::<Vec<_>>();
    let (path, since, count) = match lasting.first() {
        Some((path, _)) => (*path, lasting.iter().map(|(_, it)| it.since).min()?, lasting.len()),
        None => (all.keys().next()?, all.values().map(|it| it.since).min()?, all.len()),
    };
    let ready = ctx.awake(since) + READ;
    let verdict = if !lasting.is_empty() {
        Verdict::Confirmed
    } else if ctx.now < ready {
        Verdict::Watched { until: Some(ready) }
    } else {
        // It has to be read a second time before it is reported.
        Verdict::Unverified
    };
    let spot = BlindSpot::of(Blind::CniCache {
        path: path.clone(),
        count: u64::try_from(count).unwrap_or(u64::MAX),
    });
    Some(Detection::new(spot, &["cni_cache"], Severity::Info, since, verdict))
}

/// If readings of the node find no runtime's records although a runtime runs and has sandboxes: returns since
/// when, the time of the last such reading, and when a runtime last started or ended.
fn unread_since(ctx: &DetectContext<'_>) -> Option<(Timestamp, Timestamp, Timestamp)> {
    let world = ctx.world;
    let (at, _) = world.records.networks.as_ref()?;
    if !world.records.runtimes.is_empty() || world.sandboxes.is_empty() {
        return None;
    }
    Some((world.records.without_runtimes_since?, *at, lookup::daemons::runtimes_turned_at(world)?))
}

fn signals(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.coverage.attached.values().filter(|row| row.mechanism.is_none()) {
        let spot = BlindSpot::of(Blind::Signal { signal: row.signal });
        // No kind needs the signals `CgroupReleased` and `Listening`.
        if !spot.weaker.is_empty() {
            let severity = if row.signal == Signal::Exec { Severity::Warning } else { Severity::Info };
            let word = row.signal.into_str().replace(' ', "_");
            found.push(Detection::new(spot, &["signal", &word], severity, ctx.now, Verdict::Confirmed));
        }
    }
}

impl Explain for BlindSpot {
    fn summary(&self) -> String {
        let what = match &self.spot {
            Blind::Signal { signal } => format!("{signal} is not seen"),
            Blind::Lost { count: 1 } => "1 record was lost".to_owned(),
            Blind::Lost { count } => format!("{count} records were lost"),
            Blind::Store { path } => format!("the store {} cannot be read whole", escaped(path)),
            Blind::Right { right } => format!("the agent lacks the right to {}", escaped(right)),
            Blind::Runtime { place: Some(place) } => {
                format!("the runtime's records in {} cannot be read whole", escaped(place))
            }
            Blind::Runtime { place: None } => "no runtime's records were found".to_owned(),
            Blind::Cri { socket } => format!("no list can be read from the runtime at {}", escaped(socket)),
            Blind::File { path } => format!("reading {} hangs", escaped(path)),
            Blind::Listing { list } => format!("{} cannot be listed whole", plural(*list)),
            Blind::LeftOut { count: 1 } => "too many findings are open, and 1 more is left out".to_owned(),
            Blind::LeftOut { count } => format!("too many findings are open, and {count} more are left out"),
            Blind::NoAgent => "for some time no agent ran".to_owned(),
            Blind::State => "what the last agent kept is lost".to_owned(),
            Blind::Kubelet => "there are pods, and no kubelet was found".to_owned(),
            Blind::CniCache { path, count: 1 } => {
                format!("libcni's cache file {} cannot be read", escaped(path))
            }
            Blind::CniCache { path, count } => {
                format!("{count} files of libcni's cache cannot be read, as {}", escaped(path))
            }
        };
        let weaker: Vec<_> = self.weaker.iter().map(|it| it.into_str()).collect();
        format!("{what}; weaker: {}", weaker.join(", "))
    }

    fn cause(&self) -> &'static str {
        "sandprobe cannot see a part of the node. It may miss findings of the kinds named here, or give a less exact \
         cause."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        if matches!(self.spot, Blind::LeftOut { .. }) {
            return lines(&["# The kind with the most findings first:", "sandprobe findings"]);
        }
        if let Blind::Right { right } = &self.spot {
            let Some(right) = right.split(' ').map(quoted).collect::<Option<Vec<String>>>() else {
                return lines(&[UNPRINTABLE]);
            };
            return lines(&[
                "# The chart's value kubernetes.ipam gives the right (docs/kubernetes.md). Whether the agent has it:",
                &format!(
                    "kubectl auth can-i {} --as=system:serviceaccount:NAMESPACE:sandprobe",
                    right.join(" ")
                ),
            ]);
        }
        if let Blind::Store { path } = &self.spot
            && !path.starts_with('/')
        {
            return lines(&[
                "# This store is objects of the API server. The agent's log says why the API server does not answer, and",
                "# docs/kubernetes.md what to do then.",
            ]);
        }
        lines(&["# This shows what is missing and how to get it:", "sandprobe doctor"])
    }

    fn forget_numbers(&mut self) {
        if let Blind::Lost { count } | Blind::LeftOut { count } = &mut self.spot {
            *count = 0;
        }
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("what sandprobe itself could not see, read or keep".to_owned())
    }
}
