//! Puts the steps that the logs tell together: which pull and which creation lasted from when to when, and whose they were.

use std::{collections::BTreeMap, time::Duration};

use probe_common::runtime::Kind;

use super::{
    Asked, SLACK,
    reference::is_same,
    words::{Said, Why},
};
use crate::{
    model::{
        fact::{ImageWork, Pull, Span},
        time::Timestamp,
    },
    source::plugin_log::Place,
};

/// The most pulls, creations of containers, and failures that are kept, and the most of others that one answer has: the
/// newest.
const MOST: usize = 1024;
const OTHERS: usize = 256;
/// The kubelet tries a pull that failed again after 5 minutes at most.
const LATELY: Duration = Duration::from_secs(6 * 60);

/// A runtime by what the logs tell of it: a node may have a containerd that logs to the journal, and another one, such as k3s',
/// that logs to a file of its own.
type Runtime = (Kind, Place);

/// Something that began and ended, as far as the logs have it.
#[derive(Debug)]
struct Work {
    by: Runtime,
    key: String,
    began: Timestamp,
    ended: Option<Timestamp>,
    /// Of a pull: the image. Of a creation: the container's id, and until that is known what CRI-O calls the container.
    of: String,
    failed: bool,
    /// Of a pull: the digest of the image's manifest.
    manifest: Option<String>,
}

/// The kubelet could not start a container, because its image was not pulled.
#[derive(Debug)]
struct Failure {
    at: Timestamp,
    pod: String,
    container: String,
    /// The kubelet did not even try.
    refused: bool,
}

/// What the logs tell of all containers.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The logs at each place tell of the time since then.
    since: BTreeMap<Place, Timestamp>,
    pulls: Vec<Work>,
    creates: Vec<Work>,
    failures: Vec<Failure>,
}

/// Gives the date of the last layer, by the digest of the image's manifest.
type Fetched<'a> = &'a dyn Fn(&str) -> Option<Timestamp>;

impl Told {
    pub(super) fn beginning(since: BTreeMap<Place, Timestamp>) -> Self {
        Self { since, ..Self::default() }
    }

    pub(super) fn has_manifests(&self) -> bool {
        self.pulls.iter().any(|it| it.manifest.is_some())
    }

    /// Takes the next step, in the order of time.
    pub(super) fn add(&mut self, at: Timestamp, said: Said, place: Place) {
        let began = || self.since.get(&place).map_or(at, |since| at.min(*since));
        match said {
            Said::RuntimeBegan { by } => {
                let by = (by, place);
                let works = self.pulls.iter_mut().chain(&mut self.creates);
                for work in works.filter(|it| it.by == by && it.ended.is_none()) {
                    (work.ended, work.failed) = (Some(at), true);
                }
            }
            Said::PullBegan { by, key, image } => {
                keep(&mut self.pulls, Work::new((by, place), key, at, image));
            }
            Said::Pulled { image, manifest } => {
                let mut open = self.pulls.iter_mut().filter(|it| it.ended.is_none());
                if let Some(pull) =
                    open.rfind(|it| it.by == (Kind::Containerd, place) && is_same(&it.of, &image))
                {
                    pull.manifest = Some(manifest);
                }
            }
            Said::PullEnded { by, key, image, failed } => {
                let (by, began) = ((by, place), began());
                let known = end(&mut self.pulls, at, failed, |it| it.by == by && it.key == key);
                // What failed without having begun says nothing of its own time.
                if known.is_none() && !failed && !image.is_empty() {
                    keep(&mut self.pulls, Work { ended: Some(at), ..Work::new(by, key, began, image) });
                }
            }
            Said::CreateBegan { by, key, of } => {
                keep(&mut self.creates, Work::new((by, place), key, at, of));
            }
            Said::CreateEnded { by, key, container } => {
                let (by, began) = ((by, place), began());
                let known =
                    end(&mut self.creates, at, container.is_empty(), |it| it.by == by && it.key == key);
                if let Some(create) = known {
                    create.of = container;
                } else if !container.is_empty() {
                    keep(&mut self.creates, Work { ended: Some(at), ..Work::new(by, key, began, container) });
                }
            }
            // containerd said so itself.
            Said::PullFailed { image } => {
                let mut open = self.pulls.iter_mut().filter(|it| it.ended.is_none());
                if let Some(pull) = open.find(|it| it.by.0 == Kind::Crio && is_same(&it.of, &image)) {
                    (pull.ended, pull.failed) = (Some(at), true);
                }
            }
            Said::NotStarted { pod, container, why: Why::CreateFailed } => {
                let name = format!("{pod}/{container}");
                end(&mut self.creates, at, true, |it| it.by.0 == Kind::Crio && it.of == name);
            }
            Said::NotStarted { pod, container, why: why @ (Why::Refused | Why::PullFailed) } => {
                if self.failures.len() >= MOST {
                    self.failures.remove(0);
                }
                self.failures.push(Failure { at, pod, container, refused: why == Why::Refused });
            }
        }
    }

    /// What is told of the work for one container, or of the pulls for which a sandbox may wait.
    pub(super) fn of(&self, it: &Asked, fetched: Fetched<'_>) -> Option<ImageWork> {
        if it.is_sandbox {
            return self.under_way(it);
        }
        let is_then = |work: &&Work| work.began < it.until && work.ended.is_none_or(|ended| ended > it.from);
        let span = |work: &Work| Span { began: work.began, ended: work.ended.unwrap_or(it.until) };
        let created = self.creates.iter().find(|work| work.of == it.container.as_str());
        let by = created.map(|work| work.by);
        let created = created.map(span);
        let due = created.map_or(it.until, |created| created.began);
        let is_own = |work: &&Work| {
            by.is_none_or(|by| work.by == by) && it.images.iter().any(|image| is_same(image, &work.of))
        };
        let tries: Vec<&Work> = self.pulls.iter().filter(is_then).filter(is_own).collect();
        // Of several pulls of the same image for several containers, the last one before the container was made counts.
        let is_over = |work: &&&Work| !work.failed && work.ended.is_some_and(|ended| ended <= due);
        let success = tries.iter().rfind(is_over).copied();
        // Nobody waits for another runtime's work.
        let by = by.or(success.map(|work| work.by));
        let is_of_runtime = |work: &&Work| by.is_none_or(|by| work.by == by);
        let failures = self.failures(it);
        let mine: Vec<&Work> = failed(&tries, &failures).chain(success).collect();
        let is_mine = |work: &Work| mine.iter().any(|own| std::ptr::eq(*own, work));
        let pull = |work: &Work| {
            let span = span(work);
            let fetched = work.manifest.as_deref().filter(|_| !work.failed).and_then(fetched);
            let fetched = fetched.filter(|at| span.began <= *at && *at <= span.ended);
            Pull { span, failed: work.failed, fetched }
        };
        let others = |works: &[Work], turn: Timestamp, is_its: &dyn Fn(&Work) -> bool| {
            // Nobody may have told that it failed, and then it held no place.
            let is_unsure =
                |work: &Work| work.by.0 == Kind::Crio && work.ended.is_none() && work.began < turn;
            let other = || works.iter().filter(is_then).filter(is_of_runtime).filter(|work| !is_its(work));
            let too_many = other().count().saturating_sub(OTHERS);
            if other().any(is_unsure) { Vec::new() } else { other().skip(too_many).map(span).collect() }
        };
        let turn = success.map_or(due, |work| work.began);
        let work = ImageWork {
            container: it.container.clone(),
            pulls: tries.iter().filter(|work| is_mine(work)).map(|work| pull(work)).collect(),
            other_pulls: others(&self.pulls, turn, &is_mine),
            refused: failures.iter().filter(|it| it.refused).map(|it| it.at).take(OTHERS).collect(),
            created,
            other_creates: others(&self.creates, due, &|work| work.of == it.container.as_str()),
        };
        let is_told = !work.pulls.is_empty() || work.created.is_some() || !work.refused.is_empty();
        is_told.then_some(work)
    }

    /// The pulls that are under way. If a pull for this pod failed lately, the pod does not wait for one of them: that is told as
    /// a refusal.
    fn under_way(&self, it: &Asked) -> Option<ImageWork> {
        let is_under_way = |work: &&Work| work.began < it.until && work.ended.is_none();
        let open = self.pulls.iter().filter(is_under_way);
        let open: Vec<Span> =
            open.map(|work| Span { began: work.began, ended: it.until }).take(OTHERS).collect();
        let lately = it.until.saturating_sub(LATELY).max(it.from);
        let pod = it.pod.namespace.as_deref().zip(it.pod.name.as_deref());
        let pod = pod.map(|(namespace, name)| format!("{namespace}/{name}"));
        let is_its = |of: &&Failure| (lately..it.until).contains(&of.at) && pod.as_ref() == Some(&of.pod);
        let refused = self.failures.iter().filter(is_its).map(|of| of.at).take(OTHERS).collect();
        (!open.is_empty()).then(|| ImageWork {
            container: it.container.clone(),
            pulls: Vec::new(),
            other_pulls: open,
            refused,
            created: None,
            other_creates: Vec::new(),
        })
    }

    /// Of this container in its time, in order.
    fn failures(&self, it: &Asked) -> Vec<&Failure> {
        let Some(((namespace, pod), name)) =
            it.pod.namespace.as_deref().zip(it.pod.name.as_deref()).zip(it.name.as_deref())
        else {
            return Vec::new();
        };
        let pod = format!("{namespace}/{pod}");
        let is_its =
            |of: &&Failure| (it.from..it.until).contains(&of.at) && of.pod == pod && of.container == name;
        self.failures.iter().filter(is_its).collect()
    }
}

impl Work {
    fn new(by: Runtime, key: String, began: Timestamp, of: String) -> Self {
        Self { by, key, began, ended: None, of, failed: false, manifest: None }
    }
}

/// Those of the pulls of a container's image whose failures are the container's: of each the last one before the kubelet said
/// so, since the kubelet says it of each try. Other pods may pull the same image, and no runtime's log tells for whom.
fn failed<'a>(tries: &'a [&'a Work], failures: &'a [&'a Failure]) -> impl Iterator<Item = &'a Work> {
    let before = [Timestamp::ZERO].into_iter().chain(failures.iter().map(|it| it.at));
    failures.iter().zip(before).filter(|(failure, _)| !failure.refused).filter_map(|(failure, before)| {
        let until = failure.at + Duration::from_micros(SLACK);
        let is_its = |ended| before < ended && ended <= until;
        tries.iter().rfind(|work| work.failed && work.ended.is_some_and(is_its)).copied()
    })
}

/// Ends the last one that is under way, since one before it was given up when the runtime was started anew.
fn end(works: &mut [Work], at: Timestamp, failed: bool, is_it: impl Fn(&Work) -> bool) -> Option<&mut Work> {
    let work = works.iter_mut().rfind(|it| it.ended.is_none() && is_it(it))?;
    (work.ended, work.failed) = (Some(at), failed);
    Some(work)
}

/// Adds one; where there are too many, the oldest that has ended goes.
fn keep(works: &mut Vec<Work>, work: Work) {
    if works.len() >= MOST {
        works.remove(works.iter().position(|it| it.ended.is_some()).unwrap_or(0));
    }
    works.push(work);
}
