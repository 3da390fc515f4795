//! The pods that a restart holds up: those whose start was under way at the daemon's end or began before it was ready
//! again, and those whose sandboxes the new process had replaced.

use std::time::Duration;

use crate::{
    engine::world::{
        World, pod,
        sandbox::{ContainerRun, Group, Sandbox},
    },
    model::{
        fact::Origin,
        recovery::{FirstPod, HeldPod, Pod, Restart},
        time::Timestamp,
    },
};

/// A start that has lasted for longer at the daemon's end waits for something else: an image that does not exist, say.
pub(in crate::engine) const YOUNG: Duration = Duration::from_secs(5 * 60);

/// At most this many pods are noted.
pub(in crate::engine) const HELD: usize = 64;

impl World {
    /// Finds out what has become of the pods. Returns whether anything is new.
    pub(super) fn refresh(&mut self, place: usize, now: Timestamp) -> bool {
        let Some(known) = self.boot.recovery.restarts.open.get(place) else { return false };
        let mut restart = known.clone();
        restart.is =
            restart.process.and_then(|key| Some(self.records.with_version(self.processes.get(key)?)));
        let named = restart.first_pod.filter(|first| first.pod.name.is_some());
        restart.first_pod = named.or_else(|| self.first_pod(known));
        let found: Vec<HeldPod> = self.held(known, now).into_iter().chain(self.replaced(known)).collect();
        let mut left_out = 0_u32;
        for it in found {
            let Some(held) = restart.held.iter_mut().find(|held| held.pod.is(&it.pod)) else {
                if restart.held.len() < HELD {
                    restart.held.push(it);
                } else {
                    left_out = left_out.saturating_add(1);
                }
                continue;
            };
            if held.pod.name.is_none() {
                held.pod = it.pod.clone();
            }
            if it.replaced && !held.replaced {
                *held = HeldPod { since: held.since, ..it };
            } else if it.replaced == held.replaced {
                held.until = held.until.or(it.until);
            }
        }
        // A pod that was deleted waits no more.
        restart.held.retain(|held| held.until.is_some() || self.is_here(&held.pod));
        restart.held.sort_by(|one, other| {
            (one.since, &one.pod.namespace, &one.pod.name).cmp(&(
                other.since,
                &other.pod.namespace,
                &other.pod.name,
            ))
        });
        restart.held_left_out = restart.held_left_out.max(left_out);
        let Some(known) = self.boot.recovery.restarts.open.get_mut(place) else { return false };
        let is_news = *known != restart;
        *known = restart;
        is_news
    }

    /// The pods whose start was under way at the daemon's end, or began before it was ready again.
    fn held(&self, restart: &Restart, now: Timestamp) -> Vec<HeldPod> {
        let zero = restart.zero();
        let until = restart.ready().map_or(now, |ready| ready.at);
        let young = zero.saturating_sub(YOUNG)..=until.max(zero);
        let held = |row: &pod::Pod| {
            let sign = row.start.made_at.unwrap_or(row.first_at);
            let is_new = row.is_present() && row.origin != Origin::Listed && young.contains(&sign);
            let pod = self.boot.pod_named(&row.named).filter(|_| is_new)?;
            let sandboxes = self.all_of_pod(row.id);
            let runs = || sandboxes.iter().flat_map(|it| it.containers()).filter(|ran| !ran.listed);
            let had_run =
                |name: &String| runs().any(|ran| ran.started_at <= zero && ran.name.as_ref() == Some(name));
            let expected = &row.start.expected;
            let was_through = if expected.is_empty() {
                runs().any(|ran| ran.started_at <= zero)
            } else {
                expected.iter().all(had_run)
            };
            let since = zero.max(sign);
            let until = first_after(runs(), since);
            (!was_through).then_some(HeldPod { pod, replaced: false, since, until })
        };
        self.pods.values().filter_map(held).collect()
    }

    /// The pods whose sandboxes were stopped with nothing wrong in them after the new process had started, and that got
    /// others.
    fn replaced(&self, restart: &Restart) -> Vec<HeldPod> {
        let Some(process) = restart.process else { return Vec::new() };
        let replaced = |row: &Sandbox| {
            let (by, since) = row.replaced_by()?;
            let uid = row.reported.pod.uid.clone()?;
            let is_its = by.comm == restart.comm && by.at == Timestamp(process.start);
            let mut later =
                self.sandboxes.all_of(Group::Uid(uid)).filter(|it| it.first_at > since).peekable();
            later.peek().filter(|_| is_its)?;
            let until = first_after(later.flat_map(Sandbox::containers).filter(|ran| !ran.listed), since);
            Some(HeldPod { pod: self.boot.pod_named(&row.reported.pod)?, replaced: true, since, until })
        };
        self.sandboxes.all().filter_map(replaced).collect()
    }

    /// The first pod of which a container started after the daemon.
    fn first_pod(&self, restart: &Restart) -> Option<FirstPod> {
        let started = restart.started?.at;
        let runs = self.sandboxes.all().flat_map(|row| row.containers().iter().map(move |ran| (row, ran)));
        let later = runs.filter(|(_, ran)| !ran.listed && ran.started_at >= started);
        let (row, ran) = later.min_by_key(|(row, ran)| (ran.started_at, &row.id))?;
        let pod = row.pod.and_then(|pod| self.pods.get(&pod)).map_or(&row.reported.pod, |pod| &pod.named);
        Some(FirstPod { pod: self.boot.pod_named(pod)?, at: ran.started_at })
    }

    fn is_here(&self, pod: &Pod) -> bool {
        let named = |row: &pod::Pod| self.boot.pod_named(&row.named).is_some_and(|it| it.is(pod));
        self.pods.values().any(|row| row.is_present() && named(row))
    }
}

/// When the first of these containers started after then.
fn first_after<'a>(runs: impl Iterator<Item = &'a ContainerRun>, since: Timestamp) -> Option<Timestamp> {
    runs.map(|ran| ran.started_at).filter(|at| *at > since).min()
}
