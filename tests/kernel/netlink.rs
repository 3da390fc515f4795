//! The rtnetlink source alone, as on a kernel where no hook sees the end of namespaces or their addresses.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::IpAddr,
    path::PathBuf,
    process::{Command, Stdio},
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use probe_user::{
    model::{
        change::Question,
        fact::{Fact, Loss, Observation, Task},
        id::{NetnsKey, TaskKey},
        time::Timestamp,
    },
    source::{
        netlink::Netlink,
        task::channel::{self, Batch, CancellationSource, QuestionSender},
    },
};
use tests::{
    guard::{
        address::{AddressGuard, Prefix},
        netns::{MountedNetns, ProcessNetns},
    },
    machine,
};
use tokio::{runtime::Runtime, sync::mpsc, time};

/// The number of namespaces on a machine that is not emulated.
const COUNT: usize = 99;

/// The buffer has room for about twelve notifications. The flood of address changes is larger than the
/// channel of a reader that does not read.
const SMALL: usize = 4096;
const FLOOD: usize = 10_000;

#[test]
fn each_namespace_ends_once_whatever_ended_it() -> Result<()> {
    let mut source = Source::start()?;
    let mut keys = Vec::new();
    // One after another, so that inodes and ids are reused. The cookies make the keys different.
    for round in 0..machine::share_of(COUNT) {
        let netns = Held::begin(round)?;
        let key = source.watch(netns.inode(), netns.pid())?;
        source.settle()?;
        netns.end()?;
        source.until("the end", |seen| dropped(seen).contains_key(&key))?;
        keys.push(key);
    }
    // Then all at once.
    let together = (0..machine::share_of(COUNT)).map(Held::begin).collect::<Result<Vec<_>>>()?;
    for netns in &together {
        keys.push(source.watch(netns.inode(), netns.pid())?);
    }
    source.settle()?;
    together.into_iter().try_for_each(Held::end)?;
    source.until("all ends", |seen| {
        let dropped = dropped(seen);
        keys.iter().all(|key| dropped.contains_key(key))
    })?;

    let seen = source.finish()?;
    let dropped = dropped(&seen);
    ensure!(dropped.values().all(|count| *count == 1), "{dropped:?}");
    ensure!(!seen.iter().any(|one| matches!(one.fact, Fact::Lost { .. })));
    Ok(())
}

#[test]
fn an_interface_is_known_by_the_name_that_it_has() -> Result<()> {
    let mut source = Source::start()?;
    let netns = MountedNetns::create()?;
    let key = source.watch(netns.inode(), 0)?;
    source.settle()?;
    let name = name_of(&netns)?;
    // The veth pair is made within the namespace, so that nothing is left in the test's own.
    ip(&name, "link add before type veth peer name other\nlink set before name eth0\nlink set eth0 up\n")?;
    ip(&name, "addr add 192.0.2.5/24 dev eth0 label eth0:x\naddr add 2001:db8::5/64 dev eth0\n")?;
    let wanted: [IpAddr; 2] = ["192.0.2.5".parse()?, "2001:db8::5".parse()?];
    source.until("both addresses", |seen| {
        let named = |wanted| {
            seen.iter().any(|one| match &one.fact {
                Fact::AddressAdded(it) => {
                    it.address.address == wanted && it.ifname == "eth0" && it.netns == key
                }
                _ => false,
            })
        };
        wanted.into_iter().all(named)
    })?;
    netns.end()?;
    source.until("the end", |seen| dropped(seen).contains_key(&key))?;
    source.finish().map(drop)
}

#[test]
fn changes_hidden_by_an_overrun_are_found() -> Result<()> {
    let mut source = Source::with_room(SMALL)?;
    let (flooded, ended) = (MountedNetns::create()?, MountedNetns::create()?);
    let (flooded_key, ended_key) = (source.watch(flooded.inode(), 0)?, source.watch(ended.inode(), 0)?);
    source.settle()?;
    let both = "addr add 192.0.2.7/32 dev lo\naddr del 192.0.2.7/32 dev lo\n";
    ip(&name_of(&flooded)?, &both.repeat(FLOOD))?;
    ended.end()?;
    source.until("the overrun", |seen| {
        let lost = Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None };
        seen.iter().any(|one| one.fact == lost)
    })?;
    source.until("the end behind it", |seen| dropped(seen).contains_key(&ended_key))?;
    flooded.end()?;
    source.until("the other's end", |seen| dropped(seen).contains_key(&flooded_key))?;
    let dropped = dropped(&source.finish()?);
    ensure!(dropped.values().all(|count| *count == 1), "{dropped:?}");
    Ok(())
}

/// The engine concludes from that how long nobody heard its addresses.
#[test]
fn a_namespace_that_is_over_before_it_is_watched_is_reported_with_the_time_of_the_request() -> Result<()> {
    let mut source = Source::start()?;
    let made = MountedNetns::create()?;
    let netns = NetnsKey::new(made.inode(), 1);
    made.end()?;
    let unheard_since = Some(Timestamp(7));
    source.questions.ask(Question::Watch { netns, by: Task::default(), unheard_since });
    source.until("that it is not watched", |seen| {
        seen.iter().any(|one| one.fact == Fact::NetnsUnwatched { netns, unheard_since })
    })?;
    source.finish().map(drop)
}

/// The source on its thread, and the observations that it has sent.
struct Source {
    questions: QuestionSender,
    batches: mpsc::Receiver<Batch>,
    stopper: CancellationSource,
    worker: JoinHandle<()>,
    runtime: Runtime,
    seen: Vec<Observation>,
    watched: u64,
}

impl Source {
    fn start() -> Result<Self> {
        Self::of(Netlink::open(PathBuf::from("/"))?)
    }

    fn with_room(room: usize) -> Result<Self> {
        Self::of(Netlink::with_room(PathBuf::from("/"), room)?)
    }

    fn of(netlink: Netlink) -> Result<Self> {
        let (feed, batches) = channel::feed();
        let (questions, queue) = channel::questions();
        let (stopper, stop) = channel::stop();
        let worker = netlink.start(feed, queue, stop)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { questions, batches, stopper, worker, runtime, seen: Vec::new(), watched: 0 })
    }

    /// Sends the same question as the engine. The cookie is the test's own count, because the source returns
    /// the key that it is given.
    fn watch(&mut self, inode: u32, pid: u32) -> Result<NetnsKey> {
        self.watched += 1;
        let netns = NetnsKey::new(inode, self.watched);
        let by = Task { key: TaskKey::new(pid, 0), tid: pid, ..Task::default() };
        self.questions.ask(Question::Watch { netns, by, unheard_since: None });
        Ok(netns)
    }

    /// Waits until all watched namespaces are being watched. The source answers questions in order, and the
    /// last one here has a visible answer.
    fn settle(&mut self) -> Result<()> {
        let netns = MountedNetns::create()?;
        let address = Prefix { address: "192.0.2.1".parse()?, length: 32 };
        let guard = AddressGuard::add(&netns, "lo", &[address])?;
        let key = self.watch(netns.inode(), 0)?;
        self.until("the question's answer", |seen| {
            seen.iter().any(|one| matches!(&one.fact, Fact::AddressFound(it) if it.netns == key))
        })?;
        guard.end()
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&[Observation]) -> bool) -> Result<()> {
        let Self { runtime, batches, seen, .. } = self;
        runtime.block_on(async {
            let reported = async {
                while !done(seen) {
                    seen.extend(batches.recv().await.context("the source has ended")?);
                }
                Ok(())
            };
            time::timeout(machine::patience(), reported)
                .await
                .with_context(|| format!("{what} is not reported"))?
        })
    }

    fn finish(mut self) -> Result<Vec<Observation>> {
        self.stopper.stop();
        while let Some(batch) = self.batches.blocking_recv() {
            self.seen.extend(batch);
        }
        self.worker.join().map_err(|_panic| anyhow!("the source panicked"))?;
        Ok(self.seen)
    }
}

/// A namespace that is held in one of three ways.
enum Held {
    Mounted(MountedNetns),
    /// Only an open file holds it at the end.
    Opened(MountedNetns),
    Process(ProcessNetns),
}

impl Held {
    fn begin(round: usize) -> Result<Self> {
        Ok(match round % 3 {
            0 => Self::Mounted(MountedNetns::create()?),
            1 => Self::Opened(MountedNetns::create()?),
            _ => Self::Process(ProcessNetns::create()?),
        })
    }

    fn inode(&self) -> u32 {
        match self {
            Self::Mounted(netns) | Self::Opened(netns) => netns.inode(),
            Self::Process(netns) => netns.inode(),
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Mounted(_) | Self::Opened(_) => 0,
            Self::Process(netns) => netns.pid(),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Mounted(netns) => netns.end(),
            Self::Opened(netns) => netns.into_open().map(drop),
            Self::Process(netns) => netns.end(),
        }
    }
}

/// Returns the number of reported ends of each namespace.
fn dropped(seen: &[Observation]) -> BTreeMap<NetnsKey, usize> {
    let mut dropped = BTreeMap::new();
    for one in seen {
        if let Fact::NetnsDropped { netns, .. } = one.fact {
            *dropped.entry(netns).or_default() += 1;
        }
    }
    dropped
}

fn name_of(netns: &MountedNetns) -> Result<String> {
    let name = netns.path().file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).context("a namespace's mount has a name")
}

/// Runs `ip` commands, one on each line, inside the namespace `name`.
fn ip(name: &str, commands: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-netns", name, "-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("ip has no input")?.write_all(commands.as_bytes())?;
    let status = child.wait()?;
    ensure!(status.success(), "ip: {status}");
    Ok(())
}
