//! **Rule:** two containers of one name run in one sandbox for longer than a restart takes.
//!
//! Not flagged: containers whose name or sandbox is not known; an old and a new container that overlap for a
//! moment, since the record of the old one's end may come late; anything between a gap and the listing that
//! closes it, since the record of an end may be lost.

use std::{collections::BTreeMap, time::Duration};

use super::{DetectContext, Detection, Verdict, index::Subjects, rule::Rule};
use crate::{
    engine::world::table::container::{Container, State},
    model::{
        fact::{List, Role},
        finding::{DuplicateContainer, Explain, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{asked, lines},
    },
};

/// How long the old container and the new one may seem to run together during a restart.
pub(super) const OVERLAP: Duration = Duration::from_secs(20);

impl Rule for DuplicateContainer {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> =
        Subjects::sandboxes(|ctx| ctx.index.sandboxes.things().cloned().collect());

    fn judge(ctx: &DetectContext<'_>, sandbox: &ContainerId, found: &mut Vec<Detection>) {
        let mut named: BTreeMap<&str, Vec<(Timestamp, &Container)>> = BTreeMap::new();
        let all = ctx.index.sandboxes.by(sandbox).filter_map(|id| ctx.world.containers.get(id));
        for row in all.filter(|row| row.role == Some(Role::Container)) {
            let State::Running { since, .. } = row.state else { continue };
            if let Some(name) = &row.name {
                named.entry(name).or_default().push((since, row));
            }
        }
        for (name, mut rows) in named {
            rows.sort_by_key(|(since, row)| (*since, &row.id));
            let [_, (since, _), ..] = rows.as_slice() else { continue };
            let since = *since;
            let containers = rows.iter().map(|(_, row)| row.id.clone()).collect();
            let kind = Self { name: name.to_owned(), containers };
            let verdict = if ctx.world.lists.is_gapped(List::Processes) {
                Verdict::Watched { until: None }
            } else {
                ctx.after(since, OVERLAP)
            };
            found.push(Detection {
                pod: ctx.world.sandboxes.recall(sandbox).map(|row| row.reported.pod.clone()),
                sandboxes: vec![sandbox.clone()],
                ..Detection::new(kind, &[sandbox.as_str(), name], Severity::Warning, since, verdict)
            });
        }
    }
}

impl Explain for DuplicateContainer {
    fn summary(&self) -> String {
        format!("{} containers named {} live in one sandbox", self.containers.len(), escaped(&self.name))
    }

    fn cause(&self) -> &'static str {
        "Two containers of the same name run in one sandbox."
    }

    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = lines(&["# The kubelet knows the newer one; the older is left over."]);
        all.extend(asked(runtimes, "inspect", &self.containers));
        all
    }
}
