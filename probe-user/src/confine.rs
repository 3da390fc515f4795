//! What the agent gives up once its hooks are attached: attaching needs nearly all of root's power, reading what the
//! hooks tell needs nearly none of it.
//!
//! Each thread keeps what its work needs (`Role`) and loses the rest, for good: capabilities(7),
//! `PR_SET_NO_NEW_PRIVS`, landlock(7) and seccomp(2) are all of the calling thread and pass to the threads that it
//! starts. So a thread is started from another that has taken on its role, and what starts the threads, the main one,
//! takes on a role last. docs/security.md has the tables.
//!
//! **Invariant:** what the kernel has not is told as missing, never passed over; what it has and refuses ends the run.
//!
//! **Invariant:** it knows nothing of what the threads do.

mod capability;
mod landlock;
pub mod refusal;
pub mod role;
mod seccomp;

use std::{fmt, fs::DirBuilder, os::unix::fs::DirBuilderExt as _, panic, path::PathBuf, thread};

use caps::Capability;
use clap::ValueEnum;

use self::role::Role;

/// Whether to give anything up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// All that this kernel lets a thread give up
    Full,
    /// Nothing: for a node on which something is refused that is needed
    Off,
}

/// One way to give something up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// capabilities(7), and no new ones by what is executed.
    Capabilities,
    /// landlock(7).
    Files,
    /// seccomp(2).
    Calls,
}

/// How much of a measure is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Full,
    /// With what is missing.
    Part(String),
    /// With the reason.
    Absent(String),
}

/// What was given up, and what could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    pub mode: Mode,
    /// Empty if it is off.
    pub measures: Vec<(Measure, State)>,
}

/// Something that the kernel has was refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up what is no longer needed: cannot {what}: {why}; --confine off keeps all of it")]
pub struct ConfineError {
    what: &'static str,
    why: String,
}

/// What the roles need of this node.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Where findings and history are kept; made if it is not there, for only what is there can be allowed.
    pub state_dir: Option<PathBuf>,
    /// Where the server listens in the file system: its file is removed at the end.
    pub socket: Option<PathBuf>,
    /// rtnetlink is asked about other network namespaces.
    pub netlink: bool,
}

/// The process as it is confined.
#[derive(Debug)]
pub struct Confinement {
    needs: Needs,
    /// Capabilities that this kernel asks for where most do not.
    more: Vec<(Role, Capability)>,
    /// The kernel has seccomp(2).
    calls: bool,
    confined: Confined,
}

impl Confinement {
    /// Gives up what no thread needs. `reads` reads the hooks' counters, to see what that takes here.
    ///
    /// To be called before any thread is started that is to be confined.
    pub fn begin(mode: Mode, needs: Needs, reads: impl Fn() -> bool) -> Result<Self, ConfineError> {
        let confined = Confined { mode, measures: Vec::new() };
        let mut it = Self { needs, more: Vec::new(), calls: false, confined };
        if mode == Mode::Off {
            return Ok(it);
        }
        if let Some(dir) = &it.needs.state_dir {
            // If that fails, who keeps something there says why.
            DirBuilder::new().recursive(true).mode(0o700).create(dir).ok();
        }
        // Before Linux 5.19 nobody may call bpf(2) without it where kernel.unprivileged_bpf_disabled is set.
        if !capability::without_any(reads)? {
            it.more.push((Role::Agent, Capability::CAP_BPF));
        }
        let needed = Role::ALL.into_iter().filter(|role| *role != Role::Netlink || it.needs.netlink);
        let capabilities = capability::begin(&needed.flat_map(|role| it.capabilities(role)).collect())?;
        if cfg!(panic = "abort") {
            refusal::abort_by_panic();
        }
        refusal::begin().map_err(|why| ConfineError::new("hear of refused system calls", why))?;
        let calls = seccomp::begin()?;
        it.calls = calls == State::Full;
        let files = apart("probe", || landlock::enter(Role::Writer, &it.needs))??;
        it.confined.measures =
            vec![(Measure::Capabilities, capabilities), (Measure::Files, files), (Measure::Calls, calls)];
        Ok(it)
    }

    /// Runs `start` on a thread that has this role, so that every thread that it starts has it too.
    pub fn start<T: Send>(&self, role: Role, start: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
        apart("nursery", || {
            self.enter(role)?;
            Ok(start())
        })?
    }

    /// The calling thread has this role from here on.
    pub(crate) fn enter(&self, role: Role) -> Result<(), ConfineError> {
        if self.confined.mode == Mode::Off {
            return Ok(());
        }
        capability::enter(&self.capabilities(role).collect())?;
        landlock::enter(role, &self.needs)?;
        // The last, for it forbids the others.
        let removes = self.needs.socket.is_some() && self.removes(role);
        if self.calls { seccomp::enter(role, removes) } else { Ok(()) }
    }

    #[must_use]
    pub(crate) fn confined(&self) -> &Confined {
        &self.confined
    }

    /// Whether the role can remove the socket: only where Landlock sees to it that it removes no other file.
    #[must_use]
    pub(crate) fn removes(&self, role: Role) -> bool {
        let lacks = |(measure, state): &(Measure, State)| {
            *measure == Measure::Files && matches!(state, State::Absent(_))
        };
        role == Role::Server && !self.confined.measures.iter().any(lacks)
    }

    fn capabilities(&self, role: Role) -> impl Iterator<Item = Capability> {
        let more = self.more.iter().filter(move |(whose, _)| *whose == role).map(|(_, more)| *more);
        role.capabilities().iter().copied().chain(more)
    }
}

/// What could be given up here: tried on a thread that ends with it.
pub fn survey() -> Result<Confined, ConfineError> {
    let begun = apart("survey", || Confinement::begin(Mode::Full, Needs::default(), || true))?;
    Ok(begun?.confined)
}

/// On a thread of its own, which ends with it.
fn apart<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
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

/// In one line.
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
