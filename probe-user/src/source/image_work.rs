//! Finds what runtime and kubelet did for a container before its first sign: in their logs, and in the files in which
//! containerd keeps what it fetched.
//!
//! containerd and CRI-O log when they begin and end to pull an image and to make a container; the kubelet logs when it
//! refuses to pull. None of them logs when an image is fetched and only unpacked from then on, but a file of containerd's
//! has the date of the last layer.
//!
//! **Invariant:** one search serves all containers that are asked about together; a bounded part of the logs is read.

mod content;
mod reference;
mod words;

use std::path::PathBuf;

use super::{
    host::HostRoot,
    plugin_log::{self, Window},
};
use crate::model::{
    fact::{ImageWork, PodName, Pull, Span},
    id::ContainerId,
    time::Timestamp,
};
use reference::is_same;
use words::Said;

/// Pulls that began so long before the time that is asked about, µs, are found, if they are under way then.
const LOOK_BACK: u64 = 5 * 60 * 1_000_000;
/// A line may be logged so long after what it tells of, µs.
const SLACK: u64 = 1_000_000;
/// The most pulls, and the most creations of containers, that are taken of the logs, and that one answer has of others.
const MOST: usize = 1024;
const OTHERS: usize = 256;

/// A container that is asked about.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) container: ContainerId,
    /// The names of its image in its bundle.
    pub(crate) images: Vec<String>,
    pub(crate) pod: PodName,
    /// Its name in the pod's specification.
    pub(crate) name: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// Something that began and ended, as far as the logs have it.
#[derive(Debug)]
struct Work {
    key: String,
    began: Timestamp,
    ended: Option<Timestamp>,
    /// Of a pull: the image. Of a creation: the container's id.
    of: String,
    failed: bool,
    /// Of a pull: the digest of the image's manifest.
    manifest: Option<String>,
}

/// What the logs tell of all containers.
#[derive(Debug, Default)]
struct Told {
    pulls: Vec<Work>,
    creates: Vec<Work>,
    refused: Vec<(Timestamp, String, String)>,
}

/// Searches the logs once for all of them; those of which nothing is told have no answer. `roots` gives the directories of
/// the node's containerds, where they are needed.
pub(crate) fn find(
    root: &HostRoot,
    asked: &[Asked],
    boot_wall_ns: i64,
    roots: impl FnOnce() -> Vec<PathBuf>,
) -> Vec<ImageWork> {
    let times = || asked.iter().map(|it| (it.from, it.until));
    let (Some(from), Some(until)) = (times().map(|it| it.0).min(), times().map(|it| it.1).max()) else {
        return Vec::new();
    };
    let wall = |at: Timestamp| boot_wall_ns.saturating_add_unsigned(at.0).max(0).unsigned_abs() / 1000;
    let since_boot = |us: u64| {
        let ns = i128::from(us) * 1000 - i128::from(boot_wall_ns);
        Timestamp(u64::try_from(ns).unwrap_or(0))
    };
    let window = Window { from: wall(from).saturating_sub(LOOK_BACK), until: wall(until) + SLACK };
    let mut lines = Vec::new();
    plugin_log::lines(root, window, &mut |at, line| {
        let said = words::read(line);
        let is_told = said.is_some();
        lines.extend(said.map(|said| (plugin_log::written_at(line).unwrap_or(at), said)));
        is_told
    });
    lines.sort_unstable();
    lines.dedup();
    let mut told = Told::default();
    let start = since_boot(window.from);
    for (at, said) in lines {
        told.add(start, since_boot(at), said);
    }
    let stores = if told.pulls.iter().any(|it| it.manifest.is_some()) { roots() } else { Vec::new() };
    let fetched = |work: &Work, span: Span| {
        let wall_ns = content::fetched(root, &stores, work.manifest.as_deref()?)?;
        let at = since_boot(u64::try_from(wall_ns / 1000).ok()?);
        (span.began <= at && at <= span.ended).then_some(at)
    };
    asked.iter().filter_map(|it| told.of(it, &fetched)).collect()
}

impl Told {
    fn add(&mut self, start: Timestamp, at: Timestamp, said: Said) {
        let began = |works: &mut Vec<Work>, key, of| {
            if works.len() < MOST {
                works.push(Work { key, began: at, ended: None, of, failed: false, manifest: None });
            }
        };
        match said {
            Said::PullBegan { key, image } => began(&mut self.pulls, key, image),
            Said::Pulled { image, manifest } => {
                let mut open = self.pulls.iter_mut().filter(|it| it.ended.is_none());
                if let Some(pull) = open.find(|it| is_same(&it.of, &image)) {
                    pull.manifest = Some(manifest);
                }
            }
            Said::PullEnded { key, image, failed } => {
                if let Some(pull) = ended(&mut self.pulls, start, at, key, image) {
                    pull.failed = failed;
                }
            }
            Said::CreateBegan { key } => began(&mut self.creates, key, String::new()),
            Said::CreateEnded { key, container } => {
                if let Some(create) = ended(&mut self.creates, start, at, key, String::new()) {
                    create.of = container;
                }
            }
            Said::Refused { pod, container } if self.refused.len() < MOST => {
                self.refused.push((at, pod, container));
            }
            Said::Refused { .. } => {}
        }
    }

    /// What is told of the work for one container.
    fn of(&self, it: &Asked, fetched: &dyn Fn(&Work, Span) -> Option<Timestamp>) -> Option<ImageWork> {
        let is_then = |work: &&Work| work.began < it.until && work.ended.is_none_or(|ended| ended > it.from);
        let span = |work: &Work| Span { began: work.began, ended: work.ended.unwrap_or(it.until) };
        let is_own = |work: &Work| it.images.iter().any(|image| is_same(image, &work.of));
        let pulls = || self.pulls.iter().filter(is_then);
        let own: Vec<&Work> = pulls().filter(|work| is_own(work) && work.ended.is_some()).collect();
        // Of several pulls of the same image for several containers, the last one before the container was made counts.
        let created = self.creates.iter().find(|work| work.of == it.container.as_str()).map(span);
        let due = created.map_or(it.until, |created| created.began);
        let is_over = |work: &&&Work| !work.failed && work.ended.is_some_and(|ended| ended <= due);
        let success = own.iter().rfind(is_over).copied();
        let is_its = |work: &Work| success.is_some_and(|own| std::ptr::eq(own, work));
        let (pod, name) = (it.pod.namespace.as_deref().zip(it.pod.name.as_deref()), it.name.as_deref());
        let pod = pod.map(|(namespace, pod)| format!("{namespace}/{pod}"));
        let refused = self.refused.iter().filter(|(at, of, container)| {
            (it.from..it.until).contains(at) && Some(of) == pod.as_ref() && Some(&**container) == name
        });
        let is_mine = |work: &Work| is_its(work) || work.failed && is_own(work);
        let work = ImageWork {
            container: it.container.clone(),
            pulls: own
                .iter()
                .filter(|work| is_mine(work))
                .map(|work| {
                    let (span, failed) = (span(work), work.failed);
                    Pull { span, failed, fetched: if failed { None } else { fetched(work, span) } }
                })
                .collect(),
            other_pulls: pulls().filter(|work| !is_mine(work)).map(span).take(OTHERS).collect(),
            refused: refused.map(|(at, ..)| *at).take(OTHERS).collect(),
            created,
            other_creates: self
                .creates
                .iter()
                .filter(is_then)
                .filter(|work| work.of != it.container.as_str())
                .map(span)
                .take(OTHERS)
                .collect(),
        };
        let is_told = !work.pulls.is_empty() || work.created.is_some() || !work.refused.is_empty();
        is_told.then_some(work)
    }
}

/// Ends the first that is under way with this key. One that began before the logs were read from began then.
fn ended(
    works: &mut Vec<Work>,
    start: Timestamp,
    at: Timestamp,
    key: String,
    of: String,
) -> Option<&mut Work> {
    let mut open = works.iter().enumerate().filter(|(_, it)| it.ended.is_none());
    let place = match open.find(|(_, it)| it.key == key) {
        Some((place, _)) => place,
        // What failed without having begun says nothing of its own time.
        None if works.len() < MOST && !of.is_empty() => {
            works.push(Work { key, began: start, ended: None, of, failed: false, manifest: None });
            works.len() - 1
        }
        None => return None,
    };
    let work = works.get_mut(place)?;
    work.ended = Some(at);
    Some(work)
}

#[cfg(test)]
mod tests;
