//! Cgroups are made, entered, emptied and removed, in every hierarchy that can identify containers.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use probe_user::model::fact::{Cgroup, Fact, Observation};
use tests::{
    cgroupfs::{self, Hierarchy},
    guard::{cgroup::CgroupGuard, unique_name},
    live::{Live, Setup, Shared, check_no_loss},
    machine, skipped,
};

/// The number of cgroups on a machine that is not emulated.
const COUNT: usize = 300;

/// A fact about one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Created,
    Entered(u32),
    Emptied,
    Removed,
    Released,
}

#[test]
fn each_cgroup_is_reported_once_in_order_with_its_own_id() -> Result<()> {
    skipped::retry(|attempt| each_cgroup_is_reported(machine::share_of(COUNT) >> attempt))
}

fn each_cgroup_is_reported(count: usize) -> Result<()> {
    let hierarchies = hierarchies()?;
    let count = count.div_ceil(hierarchies.len());
    for hierarchy in &hierarchies {
        let mut shared = Shared::start()?;
        let result = if shared.hierarchy().id == hierarchy.id {
            come_and_go(&mut shared, hierarchy, &hierarchies, count)
        } else {
            let setup = Setup { hierarchy: Some(hierarchy.id), ..Setup::default() };
            come_and_go(&mut Live::start(setup)?, hierarchy, &hierarchies, count)
        };
        result.with_context(|| format!("hierarchy {} of {:?}", hierarchy.id, hierarchy.controllers))?;
    }
    Ok(())
}

/// Returns the v2 hierarchy, and the v1 hierarchy whose directories identify containers.
fn hierarchies() -> Result<Vec<Hierarchy>> {
    let all = cgroupfs::hierarchies()?;
    let wanted = |hierarchy: &&Hierarchy| {
        hierarchy.id == 0 || hierarchy.controllers.split(',').any(|name| name == "memory" || name == "pids")
    };
    let mut found: Vec<_> = all.iter().filter(wanted).cloned().collect();
    found.truncate(2);
    ensure!(!found.is_empty(), "no hierarchy identifies containers");
    Ok(found)
}

fn come_and_go(live: &mut Live, hierarchy: &Hierarchy, all: &[Hierarchy], count: usize) -> Result<()> {
    let above = CgroupGuard::create(hierarchy)?;
    // Each hierarchy numbers its cgroups by itself. The ids of two hierarchies may be equal.
    let others: Vec<_> = all.iter().filter(|other| other.id != hierarchy.id).collect();
    let mut made = BTreeMap::new();
    let mut member = Member::start()?;
    for i in 0..count {
        let strangers = others.iter().map(|other| CgroupGuard::create(other)).collect::<Result<Vec<_>>>()?;
        // In every fifth cgroup the process ends. From the others it is moved away.
        let ends = i % 5 == 0;
        let guard = CgroupGuard::create_at(hierarchy, &format!("{}/{}", above.path(), unique_name("one")))?;
        let path = guard.path().to_owned();
        guard.attach(&member.0)?;
        let mut steps = vec![Step::Created, Step::Entered(member.0.id()), Step::Emptied];
        if ends {
            member = Member::start()?;
        } else {
            above.attach(&member.0)?;
        }
        let id = guard.id().id;
        guard.end()?;
        strangers.into_iter().try_for_each(CgroupGuard::end)?;
        steps.extend([Step::Removed, Step::Released]);
        ensure!(made.insert(id, (path, steps, ends)).is_none(), "the kernel gave the id {id} twice");
    }
    drop(member);
    let beginning = format!("{}/", above.path());
    live.until("the release of all cgroups", |seen| {
        let released = |one: &&Observation| match &one.fact {
            Fact::CgroupReleased { cgroup } => cgroup.path.starts_with(&beginning),
            _ => false,
        };
        (seen.iter().filter(released).count() >= count).then_some(())
    })?;
    above.end()?;
    let reported = live.settled()?;
    check_no_loss(&reported)?;

    let mut seen: BTreeMap<u64, (String, Vec<Step>)> = BTreeMap::new();
    let mut facts: Vec<_> = reported.iter().collect();
    facts.sort_by_key(|one| one.at);
    for one in facts {
        let Some((cgroup, step)) = step(&one.fact) else { continue };
        ensure!(cgroup.key.hierarchy == hierarchy.id, "a cgroup of another hierarchy: {one:?}");
        if !cgroup.path.starts_with(&beginning) {
            continue;
        }
        let level = u32::try_from(cgroup.path.matches('/').count())?;
        ensure!(!cgroup.nested && cgroup.level == level, "{one:?}");
        let entry = seen.entry(cgroup.key.id).or_insert_with(|| (cgroup.path.clone(), Vec::new()));
        ensure!(entry.0 == cgroup.path, "{one:?} had the path {} before", entry.0);
        entry.1.push(step);
    }
    // Since kernel 7.0 a directory can be removed before the last process in it is switched out for good.
    // Only that switch empties the cgroup.
    let can_be_late = machine::kernel()? >= (7, 0);
    for (id, (path, steps, ends)) in &made {
        let reported = seen.get(id).with_context(|| format!("{id} {path}: made {steps:?}, not reported"))?;
        ensure!(reported.0 == *path, "{id} {path} is reported as {}", reported.0);
        let mut late = steps.clone();
        late.swap(2, 3);
        ensure!(
            reported.1 == *steps || can_be_late && *ends && reported.1 == late,
            "{id} {path}: made {steps:?}, reported {:?}",
            reported.1
        );
    }
    ensure!(seen.len() == made.len(), "{} cgroups reported, made {}", seen.len(), made.len());
    Ok(())
}

fn step(fact: &Fact) -> Option<(&Cgroup, Step)> {
    match fact {
        Fact::CgroupCreated { cgroup, .. } => Some((cgroup, Step::Created)),
        Fact::CgroupEntered { cgroup, member, .. } => Some((cgroup, Step::Entered(member.pid))),
        Fact::CgroupEmptied { cgroup } => Some((cgroup, Step::Emptied)),
        Fact::CgroupRemoved { cgroup, .. } => Some((cgroup, Step::Removed)),
        Fact::CgroupReleased { cgroup } => Some((cgroup, Step::Released)),
        _ => None,
    }
}

/// A process that is moved between cgroups. It ends when this is dropped.
struct Member(Child);

impl Member {
    fn start() -> Result<Self> {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It may have been killed with its cgroup. After this call it is gone in either case.
        let _ = self.0.wait();
    }
}
