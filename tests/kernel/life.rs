//! What a test made of namespaces, what the hooks told of them, and whether the two agree.
//!
//! Others on the machine make namespaces too, and may be given a number that was ours before: a life of ours is known
//! by who made it.

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

/// In how many ways [`Life::begin`] makes one.
pub(crate) const WAYS: usize = 4;

/// What a test knows of a namespace that it has made and ended. Times are of boot.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    inode: u32,
    maker: u32,
    /// Before it was made, and after.
    made: (u64, u64),
    /// Before it was ended.
    ended: u64,
}

/// One that is there.
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

/// A namespace that a process was born into.
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
        Ok(Self { inode: line.trim_end().parse().context("no inode is told")?, parent })
    }

    fn end(mut self) -> Result<()> {
        drop(self.parent.stdin.take());
        let status = self.parent.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Life {
    /// In turn one that a mount holds, an open file, a process that has moved there, one that was born there.
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

/// Lives one after the other in one thread, each of which ends as the next begins: so fast that the kernel takes many
/// apart together, and gives their numbers to others meanwhile.
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

/// Until the last life of each inode is told to be over.
pub(crate) fn wait_for_the_end(live: &mut Live, lives: &[Life]) -> Result<()> {
    let ended = live.until("the end of all namespaces", |seen| open(seen, lives).is_empty().then_some(()));
    if ended.is_err() {
        let of_open = |seen: &[Observation]| {
            let open = open(seen, lives);
            open.keys().map(|inode| format!("{:#?}", history(seen, *inode))).collect::<Vec<_>>()
        };
        let told = live.until("what was told", |seen| Some(of_open(seen)))?;
        return ended.with_context(|| format!("of their inodes was told: {}", told.join("\n")));
    }
    ended
}

/// Of each inode the end of its last life, where that is not told of.
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

/// One life as the hooks tell it.
#[derive(Debug)]
struct Span {
    inode: u32,
    maker: u32,
    created: u64,
    dropped: u64,
    freed: u64,
}

/// That each of `lives` was told of once and whole, and that nothing else was told of their makers.
pub(crate) fn check(seen: &[Observation], lives: &[Life]) -> Result<()> {
    let spans = spans(seen)?;
    let makers: Vec<u32> = lives.iter().map(|life| life.maker).collect();
    let mut ours: Vec<&Span> = spans.iter().filter(|span| makers.contains(&span.maker)).collect();
    ours.sort_by_key(|span| (span.inode, span.created));
    let mut lives: Vec<&Life> = lives.iter().collect();
    // Of two with one inode the first was over before the second was there.
    lives.sort_by_key(|life| (life.inode, life.made.1));

    let keys = |spans: &[(u32, u32)]| spans.to_vec();
    let told = keys(&ours.iter().map(|span| (span.inode, span.maker)).collect::<Vec<_>>());
    let made = keys(&lives.iter().map(|life| (life.inode, life.maker)).collect::<Vec<_>>());
    ensure!(told == made, "told of {told:?}, made {made:?}");
    for (span, life) in ours.iter().zip(&lives) {
        ensure!(
            (life.made.0..=life.made.1).contains(&span.created) && life.ended <= span.dropped,
            "{span:?} is not {life:?}"
        );
    }
    Ok(())
}

/// Whether some had the inode of one before them.
pub(crate) fn has_reuse(lives: &[Life]) -> bool {
    let inodes: BTreeSet<u32> = lives.iter().map(|life| life.inode).collect();
    inodes.len() < lives.len()
}

/// All lives that were seen whole. Those that were there before the hooks, or are there still, are somebody else's.
fn spans(seen: &[Observation]) -> Result<Vec<Span>> {
    let mut facts: Vec<(u64, NetnsKey, &Fact)> = seen.iter().filter_map(of_netns).collect();
    facts.sort_by_key(|(at, ..)| *at);
    let mut open: BTreeMap<u32, (NetnsKey, Span)> = BTreeMap::new();
    let mut spans = Vec::new();
    for (at, key, fact) in facts {
        let what = || format!("{fact:?} at {at}, of whose inode was told: {:#?}", history(seen, key.inode));
        match fact {
            Fact::NetnsCreated { by, .. } => {
                let span = Span { inode: key.inode, maker: by.key.pid, created: at, dropped: 0, freed: 0 };
                ensure!(open.insert(key.inode, (key, span)).is_none(), "created while there: {}", what());
            }
            Fact::NetnsDropped { .. } => {
                // Older than the hooks if it was not created.
                let Some((created, span)) = open.get_mut(&key.inode) else { continue };
                ensure!(*created == key, "dropped by another name: {}", what());
                ensure!(span.dropped == 0, "dropped twice: {}", what());
                span.dropped = at;
            }
            Fact::NetnsFreed { .. } => {
                let Some((created, mut span)) = open.remove(&key.inode) else { continue };
                ensure!(created.cookie == key.cookie || key.cookie == 0, "freed by another name: {}", what());
                ensure!(span.dropped != 0, "freed and not dropped: {}", what());
                span.freed = at;
                spans.push(span);
            }
            _ => bail!("no fact about a namespace: {fact:?}"),
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
