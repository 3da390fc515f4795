//! The series of pods, if the user asked for labels of pods, and when they are dropped.
//!
//! The last values of a pod are counted when it is removed, or later, as with a leak. So its series stay long
//! enough to be scraped.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::label::{OTHER, PodLabel};
use crate::model::{id::PodUid, time::Timestamp};

/// How long series stay after the last pod was removed and nothing more was counted. Several scrapes fit into
/// it.
pub(super) const STAY: Duration = Duration::from_secs(5 * 60);

/// The maximum number of label sets, and of pods that are remembered as present.
const CAP: usize = 900;

/// A pod as a change names it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pod<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) uid: Option<&'a PodUid>,
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    asked: Vec<PodLabel>,
    /// The label values, and when something was last counted with them.
    rows: BTreeMap<Vec<String>, Timestamp>,
    /// The pods that exist.
    present: BTreeMap<PodUid, Vec<String>>,
}

impl Owners {
    pub(super) fn new(asked: &[PodLabel]) -> Self {
        Self { asked: asked.to_vec(), ..Self::default() }
    }

    /// The values of the labels that were asked for.
    pub(super) fn of(&mut self, pod: Pod<'_>, at: Timestamp) -> Vec<String> {
        let values: Vec<String> = self.asked.iter().map(|label| label.of(pod.namespace, pod.name)).collect();
        if values.iter().all(String::is_empty) {
            return values;
        }
        if !self.rows.contains_key(&values) && self.rows.len() >= CAP {
            return vec![OTHER.to_owned(); values.len()];
        }
        let touched = self.rows.entry(values.clone()).or_default();
        *touched = (*touched).max(at);
        if let Some(uid) = pod.uid
            && (self.present.contains_key(uid) || self.present.len() < CAP)
        {
            self.present.insert(uid.clone(), values.clone());
        }
        values
    }

    /// Records that the pod was removed.
    pub(super) fn gone(&mut self, pod: &PodUid) {
        self.present.remove(pod);
    }

    /// Removes and returns the label sets that have expired.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<Vec<String>> {
        let held: BTreeSet<&Vec<String>> = self.present.values().collect();
        let over =
            self.rows.iter().filter(|(values, touched)| !held.contains(values) && now >= **touched + STAY);
        let over: Vec<Vec<String>> = over.map(|(values, _)| values.clone()).collect();
        self.rows.retain(|values, _| !over.contains(values));
        over
    }

    /// The label sets that stay.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Vec<String>> {
        self.rows.keys()
    }
}
