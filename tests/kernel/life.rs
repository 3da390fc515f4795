//! The network namespaces that a test made, the hooks' observations of them, and the comparison of the two.
//!
//! Other processes of the machine make namespaces too, and one may get the inode of an ended namespace of the
//! test. The maker's pid identifies the test's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    process::{self, Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use probe_user::model::{
    fact::{Fact, Observation},
    id::NetnsKey,
};
use tests::{
    clock,
    guard::netns::{MountedNetns, OpenNetns, ProcessNetns},
    live::Live,
    program,
};

/// The number of ways in which [`Life::begin`] makes a namespace.
pub(crate) const WAYS: usize = 4;

/// The facts that a test knows of a namespace that it made and ended. Times are in nanoseconds since boot.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    inode: u32,
    maker: u32,
    /// The times before and after it was made.
    made: (u64, u64),
    /// The time before it was ended.
    ended: u64,
}

/// A namespace that exists.
pub(crate) struct Alive {
    guard: Guard,
    made: (u64, u64),
}

enum Guard {
    Mounted(MountedNetns),
    Open(OpenNetns),
    Process(ProcessNetns),
    Forked(Forked),
}

/// A namespace in which a process was created.
struct Forked {
    parent: Child,
    inode: u32,
}

impl Forked {
    fn create() -> Result<Self> {
        let mut parent = Command::new(program::path("actor")?)
            .arg("fork-apart")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(parent.stdout.take().context("no output")?).read_line(&mut line)?;
        Ok(Self { inode: line.trim_end().parse().context("no inode is reported")?, parent })
    }

    fn end(mut self) -> Result<()> {
        drop(self.parent.stdin.take());
        let status = self.parent.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Life {
    /// Makes a namespace. The ways in turn: a mount holds the namespace, an open file holds it, a process
    /// moved into it, a process was created in it.
    pub(crate) fn begin(way: usize) -> Result<Alive> {
        let before = clock::boot_ns()?;
        let guard = match way % WAYS {
            0 => Guard::Mounted(MountedNetns::create()?),
            1 => Guard::Open(OpenNetns::create()?),
            2 => Guard::Process(ProcessNetns::create()?),
            _ => Guard::Forked(Forked::create()?),
        };
        Ok(Alive { guard, made: (before, clock::boot_ns()?) })
    }
}

/// Makes namespaces one after the other in one thread. Each ends as the next begins. The kernel then frees
/// many together, and reuses their inodes in the meantime.
pub(crate) fn chain(count: usize) -> Result<Vec<Life>> {
    let mut lives: Vec<Life> = Vec::with_capacity(count);
    for _ in 0..count {
        let before = clock::boot_ns()?;
        unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace; root is needed")?;
        let inode = u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino())?;
        let after = clock::boot_ns()?;
        lives.push(Life { inode, maker: process::id(), made: (before, after), ended: after });
    }
    Ok(lives)
}

impl Alive {
    pub(crate) fn end(self) -> Result<Life> {
        let (made, ended, own) = (self.made, clock::boot_ns()?, process::id());
        let (inode, maker) = match self.guard {
            Guard::Mounted(netns) => {
                let inode = netns.inode();
                netns.end()?;
                (inode, own)
            }
            Guard::Open(netns) => (netns.inode(), own),
            Guard::Process(netns) => {
                let life = (netns.inode(), netns.pid());
                netns.end()?;
                life
            }
            Guard::Forked(netns) => {
                let life = (netns.inode, netns.parent.id());
                netns.end()?;
                life
            }
        };
        Ok(Life { inode, maker, made, ended })
    }
}

/// Waits until the end of the last namespace with each inode is reported.
pub(crate) fn wait_for_the_end(live: &mut Live, lives: &[Life]) -> Result<()> {
    let ended = live.until("the end of all namespaces", |seen| open(seen, lives).is_empty().then_some(()));
    if ended.is_err() {
        let of_open = |seen: &[Observation]| {
            let open = open(seen, lives);
            open.keys().map(|inode| format!("{:#?}", history(seen, *inode))).collect::<Vec<_>>()
        };
        let reported = live.until("the observations of the open namespaces", |seen| Some(of_open(seen)))?;
        return ended.with_context(|| format!("reported for their inodes: {}", reported.join("\n")));
    }
    ended
}

/// Returns the end time of the last namespace with each inode, if its end is not reported.
fn open(seen: &[Observation], lives: &[Life]) -> BTreeMap<u32, u64> {
    let mut open: BTreeMap<u32, u64> = BTreeMap::new();
    for life in lives {
        let ended = open.entry(life.inode).or_default();
        *ended = life.ended.max(*ended);
    }
    for one in seen {
        if let Fact::NetnsFreed { netns } = one.fact
            && open.get(&netns.inode).is_some_and(|ended| *ended <= one.at.0)
        {
            open.remove(&netns.inode);
        }
    }
    open
}

/// One namespace as the hooks report it.
#[derive(Debug)]
struct Span {
    inode: u32,
    maker: u32,
    created: u64,
    dropped: u64,
    freed: u64,
}

/// Checks that each of `lives` is reported once and completely, and that no other namespace of their makers
/// is reported.
pub(crate) fn check(seen: &[Observation], lives: &[Life]) -> Result<()> {
    let spans = spans(seen)?;
    let makers: Vec<u32> = lives.iter().map(|life| life.maker).collect();
    let mut ours: Vec<&Span> = spans.iter().filter(|span| makers.contains(&span.maker)).collect();
    ours.sort_by_key(|span| (span.inode, span.created));
    let mut lives: Vec<&Life> = lives.iter().collect();
    // With equal inodes, the first must have ended before the second was made.
    lives.sort_by_key(|life| (life.inode, life.made.1));

    let keys = |spans: &[(u32, u32)]| spans.to_vec();
    let reported = keys(&ours.iter().map(|span| (span.inode, span.maker)).collect::<Vec<_>>());
    let made = keys(&lives.iter().map(|life| (life.inode, life.maker)).collect::<Vec<_>>());
    ensure!(reported == made, "{reported:?} are reported, {made:?} were made");
    for (span, life) in ours.iter().zip(&lives) {
        ensure!(
            (life.made.0..=life.made.1).contains(&span.created) && life.ended <= span.dropped,
            "{span:?} is not {life:?}"
        );
    }
    Ok(())
}

/// Whether two of them had the same inode.
pub(crate) fn has_reuse(lives: &[Life]) -> bool {
    let inodes: BTreeSet<u32> = lives.iter().map(|life| life.inode).collect();
    inodes.len() < lives.len()
}

/// Returns the namespaces with a reported beginning and end. Those that existed before the hooks or still
/// exist belong to other processes.
fn spans(seen: &[Observation]) -> Result<Vec<Span>> {
    let mut facts: Vec<(u64, NetnsKey, &Fact)> = seen.iter().filter_map(of_netns).collect();
    facts.sort_by_key(|(at, ..)| *at);
    let mut open: BTreeMap<u32, (NetnsKey, Span)> = BTreeMap::new();
    let mut spans = Vec::new();
    // A processor may be held up between its look at a namespace that ended and its record, while the drop is
    // reported. It reports the drop again, with the end. The engine takes the first.
    let mut held_up = 0;
    for (at, key, fact) in facts {
        let what = || format!("{fact:?} at {at}. Reported for its inode: {:#?}", history(seen, key.inode));
        match fact {
            Fact::NetnsCreated { by, .. } => {
                let span = Span { inode: key.inode, maker: by.key.pid, created: at, dropped: 0, freed: 0 };
                ensure!(open.insert(key.inode, (key, span)).is_none(), "created while it exists: {}", what());
            }
            Fact::NetnsDropped { .. } => {
                // A namespace without a reported creation is older than the hooks.
                let Some((created, span)) = open.get_mut(&key.inode) else { continue };
                ensure!(*created == key, "dropped under another key: {}", what());
                if span.dropped == 0 {
                    span.dropped = at;
                } else {
                    held_up += 1;
                    ensure!(held_up == 1, "dropped twice, and not the first one: {}", what());
                }
            }
            Fact::NetnsFreed { .. } => {
                let Some((created, mut span)) = open.remove(&key.inode) else { continue };
                ensure!(
                    created.cookie == key.cookie || key.cookie == 0,
                    "freed under another key: {}",
                    what()
                );
                ensure!(span.dropped != 0, "freed without being dropped: {}", what());
                span.freed = at;
                spans.push(span);
            }
            _ => bail!("this is no fact about a namespace: {fact:?}"),
        }
    }
    Ok(spans)
}

fn of_netns(seen: &Observation) -> Option<(u64, NetnsKey, &Fact)> {
    match &seen.fact {
        Fact::NetnsCreated { netns, .. } | Fact::NetnsDropped { netns, .. } | Fact::NetnsFreed { netns } => {
            Some((seen.at.0, *netns, &seen.fact))
        }
        _ => None,
    }
}

fn history(seen: &[Observation], inode: u32) -> Vec<&Observation> {
    seen.iter().filter(|one| of_netns(one).is_some_and(|(_, key, _)| key.inode == inode)).collect()
}
