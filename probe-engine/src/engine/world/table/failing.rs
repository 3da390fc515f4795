//! The runtimes and kubelets that do not come up: they start, fail and are started again.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::pod::Words;
use crate::model::{
    change::End,
    fact::DaemonWordsFound,
    time::{Nanoseconds, Timestamp},
};

/// A daemon that fails within this time after its start has not come up.
pub(crate) const UP: Duration = Duration::from_secs(60);

/// Starts that failed further apart than this do not belong together.
pub(crate) const APART: Duration = Duration::from_secs(10 * 60);

/// This many failed starts are more than a hiccup.
pub(crate) const FAILED: u32 = 3;

/// At most this many daemons are remembered. There are a dozen names of daemons.
const DAEMONS: usize = 32;

/// A daemon, or a container of a plugin's pod, whose last starts all failed.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// The name of its program, or of the container.
    pub(crate) comm: String,
    /// When the first process that failed was started.
    pub(crate) since: Timestamp,
    pub(crate) count: u32,
    /// When there were [`FAILED`] of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) many_at: Option<Timestamp>,
    pub(crate) last_at: Timestamp,
    /// How long the process lived that lived longest.
    #[serde(rename = "longest_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub(crate) longest: Duration,
    pub(crate) last: End,
    /// What it says about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<Box<Words>>,
}

impl Failing {
    /// Counts one more failure, of a process that was started at `started` and failed at `at`.
    pub(crate) fn after(
        known: Option<Self>,
        name: &str,
        started: Timestamp,
        at: Timestamp,
        last: End,
    ) -> Self {
        let known = known.filter(|row| at.since(row.last_at) <= APART);
        let mut row = known.unwrap_or_else(|| Self {
            comm: name.to_owned(),
            since: started,
            count: 0,
            many_at: None,
            last_at: at,
            longest: Duration::ZERO,
            last: End::default(),
            words: None,
        });
        row.count = row.count.saturating_add(1);
        if row.count == FAILED {
            row.many_at = Some(at);
        }
        row.longest = row.longest.max(at.since(started));
        (row.last_at, row.last) = (at, last);
        row
    }
}

/// The daemons, by the name of their program.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<String, Failing>);

impl Table {
    pub(crate) fn values(&self) -> impl Iterator<Item = &Failing> {
        self.0.values()
    }

    pub(crate) fn get(&self, comm: &str) -> Option<&Failing> {
        self.0.get(comm)
    }

    pub(in crate::engine::world) fn restore(&mut self, row: Failing) {
        self.0.insert(row.comm.clone(), row);
    }

    /// A process that had come up has ended.
    pub(in crate::engine::world) fn came_up(&mut self, comm: &str) {
        self.0.remove(comm);
    }

    /// A process that was started at `started` failed at `at`.
    pub(in crate::engine::world) fn failed(
        &mut self,
        comm: &str,
        started: Timestamp,
        at: Timestamp,
        last: End,
    ) {
        let known = self.0.remove(comm);
        if self.0.len() < DAEMONS {
            self.0.insert(comm.to_owned(), Failing::after(known, comm, started, at, last));
        }
    }

    /// The logs are searched for the daemon's words.
    pub(in crate::engine::world) fn words_asked(&mut self, comm: &str, since: Timestamp, now: Timestamp) {
        let Some(row) = self.0.get_mut(comm) else { return };
        let words = row.words.get_or_insert_default();
        (words.since, words.asked_at) = (since, now);
    }

    /// Takes in what was found.
    pub(in crate::engine::world) fn words_found(&mut self, it: DaemonWordsFound) {
        let words = self.0.get_mut(&it.daemon).and_then(|row| row.words.as_mut());
        if let Some(words) = words.filter(|words| words.since == it.since) {
            words.take_in(it.said, it.unsaid);
        }
    }
}
