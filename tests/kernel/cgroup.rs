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
    live::{Live, Setup, Shared, is_whole},
    machine, skipped,
};

/// On a machine that is not emulated.
const COUNT: usize = 300;

/// What is told of one cgroup, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Created,
    Entered(u32),
    Emptied,
    Removed,
    Released,
}

#[test]
fn each_is_told_of_once_in_order_and_by_its_own_number() -> Result<()> {
    skipped::retry(|attempt| each_is_told(machine::share_of(COUNT) >> attempt))
}

fn each_is_told(count: usize) -> Result<()> {
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

/// v2, and of v1 the one by whose directories containers are told apart.
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
    // Those of other hierarchies are counted in numbers of their own, which may be the same.
    let others: Vec<_> = all.iter().filter(|other| other.id != hierarchy.id).collect();
    let mut made = BTreeMap::new();
    let mut member = Member::start()?;
    for i in 0..count {
        let strangers = others.iter().map(|other| CgroupGuard::create(other)).collect::<Result<Vec<_>>>()?;
        // A process ends in every fifth; from the others it is moved away.
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
        ensure!(made.insert(id, (path, steps, ends)).is_none(), "the kernel gave {id} twice");
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
    let told = live.settled()?;
    is_whole(&told)?;

    let mut seen: BTreeMap<u64, (String, Vec<Step>)> = BTreeMap::new();
    let mut facts: Vec<_> = told.iter().collect();
    facts.sort_by_key(|one| one.at);
    for one in facts {
        let Some((cgroup, step)) = step(&one.fact) else { continue };
        ensure!(cgroup.key.hierarchy == hierarchy.id, "of another hierarchy: {one:?}");
        if !cgroup.path.starts_with(&beginning) {
            continue;
        }
        let level = u32::try_from(cgroup.path.matches('/').count())?;
        ensure!(!cgroup.nested && cgroup.level == level, "{one:?}");
        let entry = seen.entry(cgroup.key.id).or_insert_with(|| (cgroup.path.clone(), Vec::new()));
        ensure!(entry.0 == cgroup.path, "{one:?} was {} before", entry.0);
        entry.1.push(step);
    }
    // From there on a directory may go before what ended in it is switched out for good, which empties it.
    let can_be_late = machine::kernel()? >= (7, 0);
    for (id, (path, steps, ends)) in &made {
        let told = seen.get(id).with_context(|| format!("{id} {path}: made {steps:?}, not told"))?;
        ensure!(told.0 == *path, "{id} {path} is told as {}", told.0);
        let mut late = steps.clone();
        late.swap(2, 3);
        ensure!(
            told.1 == *steps || can_be_late && *ends && told.1 == late,
            "{id} {path}: made {steps:?}, told {:?}",
            told.1
        );
    }
    ensure!(seen.len() == made.len(), "told of {} cgroups, made {}", seen.len(), made.len());
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

/// A process that is moved about, and ends with this.
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
        // It may have been killed with its cgroup; either way it is gone after this.
        let _ = self.0.wait();
    }
}
