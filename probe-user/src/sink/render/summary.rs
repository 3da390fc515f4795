//! The totals of a run: events by name, pods, losses, findings. `run` prints them when it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    model::{
        change::{Change, ChangeKind},
        id::PodUid,
    },
    sink::{Label, Sink},
    words::count::counted,
};

/// How many pods are counted exactly, because their UIDs are kept. Beyond it the number is a lower bound.
const MAX_PODS: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Summary {
    events: BTreeMap<&'static str, u64>,
    pods: BTreeSet<PodUid>,
    lost: u64,
    /// Gaps whose duration is known, but not the number of lost records.
    gaps: u64,
    /// Findings that were confirmed, by kind.
    confirmed: BTreeMap<&'static str, u64>,
}

impl Sink for Summary {
    fn on_change(&mut self, change: &Change, _: &Label) {
        *self.events.entry(change.what.into_str()).or_default() += 1;
        if let ChangeKind::Gap { count, lasted, .. } = change.what {
            self.lost = self.lost.saturating_add(count);
            self.gaps += u64::from(lasted.is_some());
        }
        if let ChangeKind::FindingConfirmed(it) = &change.what {
            *self.confirmed.entry(it.kind.into_str()).or_default() += 1;
        }
        let uid = change.context.pod.as_ref().and_then(|pod| pod.uid.as_ref());
        if let Some(uid) = uid
            && self.pods.len() < MAX_PODS
            && !self.pods.contains(uid)
        {
            self.pods.insert(uid.clone());
        }
    }
}

impl Summary {
    /// The totals as a few lines of text.
    #[must_use]
    pub(crate) fn text(&self, ran: Duration) -> String {
        let events: u64 = self.events.values().sum();
        let gaps = format!("{} of unknown size", counted(self.gaps, "gap"));
        let lost = match (self.lost, self.gaps) {
            (0, 0) => "nothing lost".to_owned(),
            (lost, 0) => format!("{lost} lost"),
            (0, _) => gaps,
            (lost, _) => format!("{lost} lost and {gaps}"),
        };
        let mut text = format!(
            "{}, {}, {lost}, in {:.1} s\n",
            counted(events, "event"),
            counted(self.pods.len() as u64, "pod"),
            ran.as_secs_f64()
        );
        let width = self.events.keys().map(|name| name.len()).max().unwrap_or(0);
        for (name, count) in &self.events {
            text += &format!("  {name:width$}  {count}\n");
        }
        if self.confirmed.is_empty() {
            text += "no findings confirmed\n";
        } else {
            let each = self.confirmed.iter().map(|(kind, count)| format!("{kind} {count}"));
            text += &format!("findings confirmed: {}\n", each.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Label, Sink as _, Summary};
    use crate::model::{
        change::{Change, ChangeKind, Context, PodRef},
        fact::{Loss, Origin},
        id::PodUid,
        time::Timestamp,
    };

    fn take(summary: &mut Summary, what: ChangeKind) {
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        let uid = PodUid::parse("11111111-2222-3333-4444-555555555555");
        let context = Context { pod: Some(PodRef { uid, ..PodRef::default() }), ..Context::default() };
        let at = Timestamp(1);
        summary.on_change(&Change { seq: 1, at, origin: Origin::Kernel, late: false, context, what }, &label);
    }

    /// How many records a time without an agent lost is unknown.
    #[test]
    fn a_gap_of_unknown_size_is_not_nothing() {
        let mut summary = Summary::default();
        let said =
            |summary: &Summary| summary.text(Duration::ZERO).lines().next().unwrap_or_default().to_owned();
        assert_eq!(said(&summary), "0 events, 0 pods, nothing lost, in 0.0 s");
        let lasted = Some(Duration::from_secs(40));
        take(&mut summary, ChangeKind::Gap { what: Loss::NoAgent, count: 0, lasted });
        assert_eq!(said(&summary), "1 event, 1 pod, 1 gap of unknown size, in 0.0 s");
        take(&mut summary, ChangeKind::Gap { what: Loss::BulkRing, count: 7, lasted: None });
        take(&mut summary, ChangeKind::Gap { what: Loss::State, count: 0, lasted });
        assert_eq!(said(&summary), "3 events, 1 pod, 7 lost and 2 gaps of unknown size, in 0.0 s");
    }

    #[test]
    fn events_are_counted_by_name_and_pods_once() {
        let mut summary = Summary::default();
        for what in [
            ChangeKind::SandboxCreated,
            ChangeKind::PodFirstSeen,
            ChangeKind::Gap { what: Loss::BulkRing, count: 7, lasted: None },
        ] {
            take(&mut summary, what);
        }
        assert_eq!(
            summary.text(Duration::from_millis(1_540)),
            "3 events, 1 pod, 7 lost, in 1.5 s\n  \
             gap              1\n  \
             pod.first_seen   1\n  \
             sandbox.created  1\n\
             no findings confirmed\n"
        );
    }
}
