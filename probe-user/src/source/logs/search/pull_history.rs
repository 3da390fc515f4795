//! Joins the logged steps into pulls and creations of containers: when each began and ended, and for which
//! container.

use std::{collections::BTreeMap, time::Duration};

use probe_common::runtime::Kind;

use super::{
    Asked, SLACK,
    log_line::{Step, Why},
    reference::is_same,
};
use crate::{
    model::{
        fact::{ImageWork, Pull, Span},
        time::Timestamp,
    },
    source::logs::plugin_log::Place,
};

/// The most pulls, creations of containers, and failures that are kept: the newest.
const MAX_KEPT: usize = 1024;
/// The most pulls or creations for other containers that one answer has: the newest.
const MAX_OTHERS: usize = 256;
/// The kubelet retries a failed pull after 5 minutes at most.
const RETRY: Duration = Duration::from_secs(6 * 60);

/// Identifies a runtime in the logs. A node may have a containerd that logs to the journal, and another one,
/// such as k3s', that logs to a file of its own.
type Runtime = (Kind, Place);

/// Something that began and ended, as far as the logs have it.
#[derive(Debug)]
struct Work {
    by: Runtime,
    key: String,
    began: Timestamp,
    ended: Option<Timestamp>,
    /// For a pull: the image. For a creation: the container's id; before it is known, CRI-O's name of the
    /// container.
    of: String,
    failed: bool,
    /// For a pull: the digest of the image's manifest.
    manifest: Option<String>,
}

/// The kubelet could not start a container, because its image was not pulled or the Services were not known.
#[derive(Debug)]
struct Failure {
    at: Timestamp,
    pod: String,
    container: String,
    why: Why,
}

/// All pulls, creations and failures in the logs.
#[derive(Debug, Default)]
pub(super) struct PullHistory {
    /// When the logs at each place begin.
    since: BTreeMap<Place, Timestamp>,
    pulls: Vec<Work>,
    creates: Vec<Work>,
    failures: Vec<Failure>,
}

/// Returns the date of the last layer, by the digest of the image's manifest.
type Fetched<'a> = &'a dyn Fn(&str) -> Option<Timestamp>;

impl PullHistory {
    pub(super) fn beginning(since: BTreeMap<Place, Timestamp>) -> Self {
        Self { since, ..Self::default() }
    }

    pub(super) fn has_manifests(&self) -> bool {
        self.pulls.iter().any(|it| it.manifest.is_some())
    }

    /// Takes the next step, in the order of time.
    pub(super) fn add(&mut self, at: Timestamp, step: Step, place: Place) {
        match step {
            Step::RuntimeBegan { by } => {
                let by = (by, place);
                let works = self.pulls.iter_mut().chain(&mut self.creates);
                for work in works.filter(|it| it.by == by && it.ended.is_none()) {
                    (work.ended, work.failed) = (Some(at), true);
                }
            }
            Step::PullBegan { by, key, image } => {
                keep(&mut self.pulls, Work::new((by, place), key, at, image));
            }
            Step::Pulled { image, manifest } => {
                let mut open = self.pulls.iter_mut().filter(|it| it.ended.is_none());
                if let Some(pull) =
                    open.rfind(|it| it.by == (Kind::Containerd, place) && is_same(&it.of, &image))
                {
                    pull.manifest = Some(manifest);
                }
            }
            Step::PullEnded { by, key, image, failed } => {
                let by = (by, place);
                let known = end(&mut self.pulls, at, failed, |it| it.by == by && it.key == key);
                // If it failed and its begin is not in the logs, its time is unknown.
                if known.is_none() && !failed && !image.is_empty() {
                    let began = begin_of_logs(&self.since, at, place);
                    keep(&mut self.pulls, Work { ended: Some(at), ..Work::new(by, key, began, image) });
                }
            }
            Step::CreateBegan { by, key, of } => {
                keep(&mut self.creates, Work::new((by, place), key, at, of));
            }
            Step::CreateEnded { by, key, container } => {
                let by = (by, place);
                let known =
                    end(&mut self.creates, at, container.is_empty(), |it| it.by == by && it.key == key);
                if let Some(create) = known {
                    create.of = container;
                } else if !container.is_empty() {
                    let began = begin_of_logs(&self.since, at, place);
                    keep(&mut self.creates, Work { ended: Some(at), ..Work::new(by, key, began, container) });
                }
            }
            // containerd logged this itself.
            Step::PullFailed { image } => {
                let mut open = self.pulls.iter_mut().filter(|it| it.ended.is_none());
                if let Some(pull) = open.find(|it| it.by.0 == Kind::Crio && is_same(&it.of, &image)) {
                    (pull.ended, pull.failed) = (Some(at), true);
                }
            }
            Step::NotStarted { pod, container, why: Why::CreateFailed } => {
                let name = format!("{pod}/{container}");
                end(&mut self.creates, at, true, |it| it.by.0 == Kind::Crio && it.of == name);
            }
            Step::NotStarted {
                pod,
                container,
                why: why @ (Why::Refused | Why::PullFailed | Why::ServicesUnread),
            } => {
                if self.failures.len() >= MAX_KEPT {
                    self.failures.remove(0);
                }
                self.failures.push(Failure { at, pod, container, why });
            }
        }
    }

    /// Returns the work for one container, or the pulls for which a sandbox may wait.
    pub(super) fn of(&self, it: &Asked, fetched: Fetched<'_>) -> Option<ImageWork> {
        if it.is_sandbox {
            return self.under_way(it);
        }
        let id = it.container.as_str();
        let created = self.creates.iter().find(|work| work.of == id);
        let by = created.map(|work| work.by);
        let created = created.map(|work| work.span(it));
        let due = created.map_or(it.until, |created| created.began);
        let own = self.pulls.iter().filter(|work| work.is_at(it) && by.is_none_or(|by| work.by == by));
        let tries: Vec<&Work> =
            own.filter(|work| it.images.iter().any(|image| is_same(image, &work.of))).collect();
        // If the image was pulled for several containers, the last pull before this container was made
        // counts.
        let success =
            tries.iter().rfind(|work| !work.failed && work.ended.is_some_and(|ended| ended <= due)).copied();
        // A container does not wait for another runtime's work.
        let by = by.or(success.map(|work| work.by));
        let failures = self.failures(it);
        let mine: Vec<&Work> = failed(&tries, &failures).chain(success).collect();
        let pulls = tries.iter().filter(|work| is_among(&mine, work));
        let other_pulls = self.pulls.iter().filter(|work| !is_among(&mine, work));
        let other_creates = self.creates.iter().filter(|work| work.of != id);
        let turn = success.map_or(due, |work| work.began);
        let work = ImageWork {
            container: it.container.clone(),
            pulls: pulls.map(|work| work.pull(it, fetched)).collect(),
            other_pulls: others(other_pulls, it, by, turn),
            refused: times(&failures, Why::Refused),
            services_unread: times(&failures, Why::ServicesUnread),
            created,
            other_creates: others(other_creates, it, by, due),
        };
        let is_known = !work.pulls.is_empty()
            || work.created.is_some()
            || !work.refused.is_empty()
            || !work.services_unread.is_empty();
        is_known.then_some(work)
    }

    /// Returns the pulls that are under way. If a pull for this pod failed recently, the pod does not wait
    /// for one of them: that is reported as a refusal.
    fn under_way(&self, it: &Asked) -> Option<ImageWork> {
        let open = self.pulls.iter().filter(|work| work.began < it.until && work.ended.is_none());
        let open: Vec<Span> =
            open.map(|work| Span { began: work.began, ended: it.until }).take(MAX_OTHERS).collect();
        let recently = it.until.saturating_sub(RETRY).max(it.from);
        let pod = it.pod.namespace.as_deref().zip(it.pod.name.as_deref());
        let pod = pod.map(|(namespace, name)| format!("{namespace}/{name}"));
        let refused = self
            .failures
            .iter()
            .filter(|of| (recently..it.until).contains(&of.at) && pod.as_ref() == Some(&of.pod));
        let refused = refused.map(|of| of.at).take(MAX_OTHERS).collect();
        (!open.is_empty()).then(|| ImageWork {
            container: it.container.clone(),
            pulls: Vec::new(),
            other_pulls: open,
            refused,
            services_unread: Vec::new(),
            created: None,
            other_creates: Vec::new(),
        })
    }

    /// Returns the failures of this container in its time, in order.
    fn failures(&self, it: &Asked) -> Vec<&Failure> {
        let Some(((namespace, pod), name)) =
            it.pod.namespace.as_deref().zip(it.pod.name.as_deref()).zip(it.name.as_deref())
        else {
            return Vec::new();
        };
        let pod = format!("{namespace}/{pod}");
        let all = self.failures.iter().filter(|of| (it.from..it.until).contains(&of.at));
        all.filter(|of| of.pod == pod && of.container == name).collect()
    }
}

impl Work {
    fn new(by: Runtime, key: String, began: Timestamp, of: String) -> Self {
        Self { by, key, began, ended: None, of, failed: false, manifest: None }
    }

    /// Returns whether a part of the work was in the time of `it`.
    fn is_at(&self, it: &Asked) -> bool {
        self.began < it.until && self.ended.is_none_or(|ended| ended > it.from)
    }

    fn span(&self, it: &Asked) -> Span {
        Span { began: self.began, ended: self.ended.unwrap_or(it.until) }
    }

    fn pull(&self, it: &Asked, fetched: Fetched<'_>) -> Pull {
        let span = self.span(it);
        let layers = if self.failed { None } else { self.manifest.as_deref().and_then(fetched) };
        let fetched = layers.filter(|at| span.began <= *at && *at <= span.ended);
        Pull { span, failed: self.failed, fetched }
    }
}

/// Returns the begin of work whose begin is not in the logs: when the logs at its place begin.
fn begin_of_logs(since: &BTreeMap<Place, Timestamp>, at: Timestamp, place: Place) -> Timestamp {
    since.get(&place).map_or(at, |since| at.min(*since))
}

fn is_among(works: &[&Work], work: &Work) -> bool {
    works.iter().any(|it| std::ptr::eq(*it, work))
}

/// Returns when the runtime worked for others in the time of `it`; `turn`: when the work for `it` itself
/// began.
fn others<'a>(
    works: impl Iterator<Item = &'a Work> + Clone,
    it: &Asked,
    by: Option<Runtime>,
    turn: Timestamp,
) -> Vec<Span> {
    let works = works.filter(|work| work.is_at(it) && by.is_none_or(|by| work.by == by));
    // CRI-O's work may have failed without a log line, and then it held no place.
    if works.clone().any(|work| work.by.0 == Kind::Crio && work.ended.is_none() && work.began < turn) {
        return Vec::new();
    }
    let too_many = works.clone().count().saturating_sub(MAX_OTHERS);
    works.skip(too_many).map(|work| work.span(it)).collect()
}

/// Returns when the kubelet failed for this reason.
fn times(failures: &[&Failure], why: Why) -> Vec<Timestamp> {
    failures.iter().filter(|it| it.why == why).map(|it| it.at).take(MAX_OTHERS).collect()
}

/// Returns the failed pulls of a container's image that were for this container. The kubelet logs the failure
/// of each try, so this is the last failed pull before each such line. Other pods may pull the same image,
/// and no runtime's log says for which container.
fn failed<'a>(tries: &'a [&'a Work], failures: &'a [&'a Failure]) -> impl Iterator<Item = &'a Work> {
    let before = [Timestamp::ZERO].into_iter().chain(failures.iter().map(|it| it.at));
    failures.iter().zip(before).filter(|(failure, _)| failure.why == Why::PullFailed).filter_map(
        |(failure, before)| {
            let until = failure.at + Duration::from_micros(SLACK);
            let pull = tries.iter().rfind(|work| {
                work.failed && work.ended.is_some_and(|ended| before < ended && ended <= until)
            });
            pull.copied()
        },
    )
}

/// Ends the last work that is under way. An earlier one was given up when the runtime was restarted.
fn end(works: &mut [Work], at: Timestamp, failed: bool, is_it: impl Fn(&Work) -> bool) -> Option<&mut Work> {
    let work = works.iter_mut().rfind(|it| it.ended.is_none() && is_it(it))?;
    (work.ended, work.failed) = (Some(at), failed);
    Some(work)
}

/// Adds work. If there is too much, the oldest that has ended is dropped.
fn keep(works: &mut Vec<Work>, work: Work) {
    if works.len() >= MAX_KEPT {
        works.remove(works.iter().position(|it| it.ended.is_some()).unwrap_or(0));
    }
    works.push(work);
}
