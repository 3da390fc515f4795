//! Drops the rights that the agent does not need once its hooks are attached: attaching needs nearly all of
//! root's rights, reading records needs almost none.
//!
//! Each thread keeps the rights of its `Role` and drops the others for good. capabilities(7),
//! `PR_SET_NO_NEW_PRIVS`, landlock(7) and seccomp(2) apply to the calling thread, and pass to the threads
//! that it starts. So each thread is started by a thread that has entered the role already. The main thread,
//! which starts them, enters its own role last. docs/security.md has the tables.
//!
//! **Invariant:** a measure that the kernel does not have is reported, never skipped silently; one that the
//! kernel has and refuses ends the run.
//!
//! **Invariant:** this module does not know what the threads do.

mod capability;
mod landlock;
pub mod refusal;
pub mod role;
mod seccomp;

use std::{fmt, panic, path::PathBuf, thread};

use caps::Capability;
use clap::ValueEnum;

use self::role::Role;

/// Whether to drop rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Drop everything that this kernel lets a thread drop
    Full,
    /// Drop nothing: for a node on which a needed right is refused
    Off,
}

/// A way to drop rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// capabilities(7); executed programs get no new ones.
    Capabilities,
    /// landlock(7).
    Files,
    /// seccomp(2).
    Calls,
}

/// How far a measure is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Full,
    /// With the part that is missing.
    Part(String),
    /// With the reason.
    Absent(String),
}

/// The measures that are in force, and those that could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    pub mode: Mode,
    /// Empty if confinement is off.
    pub measures: Vec<(Measure, State)>,
}

/// The kernel has a measure, and refused it.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up what is no longer needed: cannot {what}: {why}; --confine off keeps all of it")]
pub struct ConfineError {
    what: &'static str,
    why: String,
}

/// The parts of this node that the roles need.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// The directory for findings and history. It must exist by then, because only an existing one can be
    /// allowed.
    pub state_dir: Option<PathBuf>,
    /// The directory of the log file.
    pub log_dir: Option<PathBuf>,
    /// The path of the server's socket, which is removed at the end.
    pub socket: Option<PathBuf>,
    /// What the server must open when the process that has it now is gone.
    pub later: Later,
    /// The port of the receiver to which traces and log records are sent.
    pub export_port: Option<u16>,
    /// Whether rtnetlink is asked about other network namespaces.
    pub netlink: bool,
    /// The API server of the cluster.
    pub kubernetes: Remote,
}

/// What another process has at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Later {
    /// The port to listen on.
    pub port: Option<u16>,
    /// Whether the server must take the socket's path.
    pub socket: bool,
}

/// A server to which the agent connects, possibly on another machine.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// Its port.
    pub port: u16,
    /// Where certificates and tokens are, which are read again when they change.
    pub dirs: Vec<PathBuf>,
}

/// A confined process.
#[derive(Debug)]
pub struct Confinement {
    needs: Needs,
    /// Additional capabilities that this kernel requires.
    more: Vec<(Role, Capability)>,
    /// Whether the kernel has seccomp(2).
    calls: bool,
    confined: Confined,
}

impl Confinement {
    /// Drops the rights that no thread needs. `reads` reads the hooks' counters, to find which capability
    /// that needs on this kernel.
    ///
    /// Must be called before any thread starts that must be confined.
    pub fn begin(mode: Mode, needs: Needs, reads: impl Fn() -> bool) -> Result<Self, ConfineError> {
        let confined = Confined { mode, measures: Vec::new() };
        let mut it = Self { needs, more: Vec::new(), calls: false, confined };
        if mode == Mode::Off {
            return Ok(it);
        }
        // Before Linux 5.19, bpf(2) requires a capability if kernel.unprivileged_bpf_disabled is set.
        if !capability::without_any(reads)? {
            it.more.push((Role::Agent, Capability::CAP_BPF));
        }
        let needed = Role::ALL.into_iter().filter(|role| *role != Role::Netlink || it.needs.netlink);
        let capabilities = capability::begin(&needed.flat_map(|role| it.capabilities(role)).collect())?;
        if cfg!(panic = "abort") {
            refusal::abort_by_panic();
        }
        refusal::begin().map_err(|why| ConfineError::new("handle refused system calls", why))?;
        let calls = seccomp::begin()?;
        it.calls = calls == State::Full;
        let files = on_scoped_thread("probe", || landlock::enter(Role::Writer, &it.needs))??;
        it.confined.measures =
            vec![(Measure::Capabilities, capabilities), (Measure::Files, files), (Measure::Calls, calls)];
        Ok(it)
    }

    /// Runs `start` on a thread in this role, so that every thread that it starts has the role too.
    pub fn start<T: Send>(&self, role: Role, start: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
        on_scoped_thread("nursery", || {
            self.enter(role)?;
            Ok(start())
        })?
    }

    /// Enters this role with the calling thread.
    pub(crate) fn enter(&self, role: Role) -> Result<(), ConfineError> {
        if self.confined.mode == Mode::Off {
            return Ok(());
        }
        capability::enter(&self.capabilities(role).collect())?;
        landlock::enter(role, &self.needs)?;
        // seccomp is last, because it forbids the other calls.
        let removes = self.needs.socket.is_some() && self.removes(role);
        let Later { port, socket } = if role == Role::Server { self.needs.later } else { Later::default() };
        let more = seccomp::More { removes, opens: port.is_some(), takes: removes && socket };
        if self.calls { seccomp::enter(role, &more) } else { Ok(()) }
    }

    #[must_use]
    pub(crate) fn confined(&self) -> &Confined {
        &self.confined
    }

    /// Whether the role can remove the socket: only if Landlock ensures that it can remove no other file.
    #[must_use]
    pub(crate) fn removes(&self, role: Role) -> bool {
        let mut measures = self.confined.measures.iter();
        role == Role::Server
            && !measures
                .any(|(measure, state)| *measure == Measure::Files && matches!(state, State::Absent(_)))
    }

    fn capabilities(&self, role: Role) -> impl Iterator<Item = Capability> {
        let more = self.more.iter().filter(move |(whose, _)| *whose == role).map(|(_, more)| *more);
        role.capabilities().iter().copied().chain(more)
    }
}

/// Tries which rights can be dropped here, on a thread that ends afterwards.
pub fn survey() -> Result<Confined, ConfineError> {
    let begun = on_scoped_thread("survey", || Confinement::begin(Mode::Full, Needs::default(), || true))?;
    Ok(begun?.confined)
}

/// Runs `work` on a thread of its own and waits for it.
fn on_scoped_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|why| ConfineError::new("start a thread", why))?;
        Ok(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
    })
}

impl ConfineError {
    fn new(what: &'static str, why: impl ToString) -> Self {
        Self { what, why: why.to_string() }
    }
}

impl Measure {
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Files => "files",
            Self::Calls => "system calls",
        }
    }
}

/// Writes the measures in one line.
impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mode == Mode::Off {
            return f.write_str("no (--confine off): every thread keeps all privileges");
        }
        for (n, (measure, state)) in self.measures.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            match state {
                State::Full => write!(f, "{comma}{}", measure.as_str())?,
                State::Part(what) => write!(f, "{comma}{} ({what})", measure.as_str())?,
                State::Absent(why) => write!(f, "{comma}not {} ({why})", measure.as_str())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
