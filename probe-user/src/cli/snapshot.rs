//! Reads findings and starts: from the agent, its state directory or a recording. The commands that list and
//! explain them use only this.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use clap::Args;
#[cfg(unix)]
use serde::Deserialize;

#[cfg(unix)]
use super::client::{AgentArgs, DOCTOR, STATE, Unanswered};
use super::{
    ExitStatus,
    args::StateArgs,
    replay::{replayed, unreadable},
};
use crate::{
    engine::{share::Share, view::PodView},
    model::{change::Finding, phase::Start, time::Timestamp},
    recording::state::{self, About, SavedState, StateError},
    replay::Replayed,
    sink::{Label, span::span, state::file},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotArgs {
    #[command(flatten)]
    state: StateArgs,

    #[cfg(unix)]
    #[command(flatten)]
    agent: AgentArgs,

    /// Read a recording instead of what the agent on this node has found; "-" is standard input
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
}

/// Everything that an agent has found out, with the label for its times.
#[derive(Debug)]
pub(in crate::cli) struct AgentSnapshot {
    pub(in crate::cli) label: Label,
    pub(in crate::cli) findings: Vec<Finding>,
    /// In the order of their completion.
    pub(in crate::cli) starts: Vec<Start>,
    pub(in crate::cli) shares: Vec<Share>,
    /// The pods at a recording's end. An agent's state directory does not have them.
    pub(in crate::cli) pods: Vec<PodView>,
    /// The current boot time, to compute ages.
    pub(in crate::cli) now: Timestamp,
    /// Why the snapshot may be incomplete or out of date, a line each.
    pub(in crate::cli) caveats: Vec<String>,
    /// The status of a command that shows all of it: a recording may have been cut off.
    pub(in crate::cli) done: ExitStatus,
}

/// An agent that has not updated its file for this long is not working.
const STALE: Duration = Duration::from_secs(60);

impl SnapshotArgs {
    /// Whether a flag says what to read.
    pub(in crate::cli) fn is_typed(&self) -> bool {
        #[cfg(unix)]
        let is_agent = self.agent.is_typed();
        #[cfg(not(unix))]
        let is_agent = false;
        is_agent || self.recording.is_some() || self.state.is_typed()
    }

    pub(in crate::cli) fn recording(&self) -> Option<&Path> {
        self.recording.as_deref()
    }

    pub(in crate::cli) fn read(&self) -> anyhow::Result<AgentSnapshot> {
        if let Some(file) = &self.recording {
            return self.state.refuse_beside("--recording").and_then(|()| recorded(file));
        }
        let (why, is_nobody) = match self.ask_agent()? {
            AgentAnswer::Snapshot(snapshot) => return Ok(snapshot),
            AgentAnswer::Nobody(why) => (why, true),
            AgentAnswer::Silent(why) => (Some(why), false),
        };
        match (self.state.dir(), why) {
            (Some(dir), why) => of_directory(dir, why, is_nobody),
            (None, Some(why)) => Err(anyhow!("{why}")),
            (None, None) => Err(Nowhere.into()),
        }
    }

    /// Asks the agent itself, if one answers and no directory was given instead.
    #[cfg(unix)]
    fn ask_agent(&self) -> anyhow::Result<AgentAnswer> {
        if self.state.is_typed() && !self.agent.is_typed() {
            return Ok(AgentAnswer::Nobody(None));
        }
        let bytes = match self.agent.ask_or_why(STATE) {
            Ok(bytes) => bytes,
            Err(Unanswered::Nobody(why)) => return Ok(AgentAnswer::Nobody(why)),
            Err(Unanswered::Late(why) | Unanswered::Silent(why)) => return Ok(AgentAnswer::Silent(why)),
        };
        let caveats = self.agent_caveats();
        let snapshot = AgentSnapshot::answered(&self.agent, &bytes)?;
        Ok(AgentAnswer::Snapshot(AgentSnapshot { caveats, ..snapshot }))
    }

    /// Returns what the agent cannot see, in one line, and what it cannot save. Empty if there is nothing, or
    /// if the agent does not say.
    #[cfg(unix)]
    fn agent_caveats(&self) -> Vec<String> {
        let Some(answer) = self.agent.ask(DOCTOR).ok().flatten() else { return Vec::new() };
        let Ok(Doctor { agent }) = serde_json::from_slice(&answer) else { return Vec::new() };
        let unseen =
            (!agent.reasons.is_empty()).then(|| format!("not all can be seen: {}", agent.reasons.join("; ")));
        unseen.into_iter().chain(agent.degraded).collect()
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the form of the other one")]
    fn ask_agent(&self) -> anyhow::Result<AgentAnswer> {
        Ok(AgentAnswer::Nobody(None))
    }
}

#[cfg(unix)]
impl AgentSnapshot {
    /// Reads the agent's answer at [`STATE`], as of the time at which it was made.
    pub(in crate::cli) fn answered(agent: &AgentArgs, bytes: &[u8]) -> anyhow::Result<Self> {
        let (about, kept) = state::read(bytes).map_err(|error| {
            let what = match error {
                StateError::Foreign(_) => agent.unreadable_at(STATE),
                StateError::Newer(_) | StateError::Older(_) => agent.answer_at(STATE),
            };
            anyhow::Error::new(error).context(what)
        })?;
        let now = about.written_at;
        Ok(snapshot(about, kept, now, Vec::new()))
    }
}

/// The state directory has no findings: no agent has run.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}no findings are stored in {}: start sandprobe run on this node, or check once for leaks with sandprobe leaks",
    .nobody.as_ref().map(|why| format!("{why}; ")).unwrap_or_default(),
    .dir.display()
)]
pub(in crate::cli) struct NothingKept {
    dir: PathBuf,
    /// Why nobody answers either, if that is to be reported.
    pub(in crate::cli) nobody: Option<String>,
}

/// No agent answers, and no state directory is to be read.
#[derive(Debug, thiserror::Error)]
#[error("nowhere to read from: give --state-dir or --recording")]
pub(in crate::cli) struct Nowhere;

/// The needed part of `/v1/doctor`.
#[cfg(unix)]
#[derive(Deserialize)]
struct Doctor {
    agent: Readiness,
}

#[cfg(unix)]
#[derive(Deserialize)]
struct Readiness {
    reasons: Vec<String>,
    /// An older agent does not have this member.
    #[serde(default)]
    degraded: Vec<String>,
}

/// The answer of the agent.
enum AgentAnswer {
    Snapshot(AgentSnapshot),
    /// Nobody listens, or no agent is asked. There is a reason if it is worth reporting.
    Nobody(Option<String>),
    /// An agent listens, but cannot be asked.
    Silent(String),
}

/// Returns the note that the data is from the state directory, for this reason.
pub(in crate::cli) fn instead(why: &str) -> String {
    format!("{why}; reading the state directory instead")
}

/// Reads the state directory because the agent did not answer. Reports the reason with the data, or in one
/// line with the error if the directory cannot be read either.
fn of_directory(dir: &Path, why: Option<String>, is_nobody: bool) -> anyhow::Result<AgentSnapshot> {
    match (read_saved(dir), why) {
        (Ok((about, kept, wall, caveat)), why) => {
            let caveats = why.map(|why| instead(&why)).into_iter().chain(caveat).collect();
            let now = boot_time(wall, about.boot_wall_ns);
            Ok(snapshot(about, kept, now, caveats))
        }
        (Err(error), None) => Err(error),
        (Err(error), why) if is_nobody && error.is::<NothingKept>() => {
            Err(NothingKept { dir: dir.to_owned(), nobody: why }.into())
        }
        (Err(error), Some(why)) => Err(anyhow!("{why}; {error:#}")),
    }
}

fn read_saved(dir: &Path) -> anyhow::Result<(About, SavedState, SystemTime, Option<String>)> {
    let path = dir.join(FILE);
    let bytes = match file::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NothingKept { dir: dir.to_owned(), nobody: None }.into());
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(anyhow!("cannot read {}: {error}; run as root", path.display()));
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let (about, kept) = state::read(&bytes).map_err(|error| {
        let is = match error {
            StateError::Foreign(_) => " is damaged; an agent that runs writes it anew",
            // Nothing is wrong with the file.
            StateError::Newer(_) | StateError::Older(_) => "",
        };
        anyhow!("{}{is}: {error}", path.display())
    })?;
    let wall = SystemTime::now();
    let touched = fs::metadata(&path).and_then(|about| about.modified()).unwrap_or(UNIX_EPOCH);
    let quiet = wall.duration_since(touched).unwrap_or_default();
    let caveat = caveat(&about, is_running(dir), quiet);
    Ok((about, kept, wall, caveat))
}

fn snapshot(about: About, kept: SavedState, now: Timestamp, caveats: Vec<String>) -> AgentSnapshot {
    let SavedState { findings, starts, shares } = kept;
    let label = Label { node: about.node, boot_id: about.boot_id, boot_wall_ns: about.boot_wall_ns };
    AgentSnapshot { now, caveats, label, findings, starts, shares, pods: Vec::new(), done: ExitStatus::Ok }
}

/// The agent's name for the file.
const FILE: &str = "findings.json";

/// An agent locks the directory while it lives.
fn is_running(dir: &Path) -> bool {
    let locked = File::open(dir).map(|dir| dir.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

fn caveat(about: &About, running: bool, quiet: Duration) -> Option<String> {
    let ago = span(quiet);
    if !running {
        // The end of an agent that was killed left no time.
        let how = if about.ended { "was ended" } else { "does not run; its last sign of life was" };
        return Some(format!("sandprobe run {how} {ago} ago: this is its last state"));
    }
    (quiet > STALE).then(|| format!("sandprobe run has not updated its file for {ago}: it may hang"))
}

/// Returns the current boot time by that boot's clock, even if the node was booted again since.
fn boot_time(wall: SystemTime, boot_wall_ns: i64) -> Timestamp {
    let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let since = i128::try_from(wall).unwrap_or(0) - i128::from(boot_wall_ns);
    Timestamp(u64::try_from(since).unwrap_or(0))
}

/// Returns the state of an engine at the end of a recording.
fn recorded(file: &Path) -> anyhow::Result<AgentSnapshot> {
    let Replayed { header, engine, boot_wall_ns, observed_until, cut_off, .. } = replayed(file)?;
    Ok(AgentSnapshot {
        label: Label { node: header.node, boot_id: header.boot_id, boot_wall_ns },
        findings: engine.findings().cloned().collect(),
        starts: engine.starts(),
        shares: engine.shares(),
        pods: engine.pods(),
        now: observed_until,
        caveats: cut_off.iter().map(|error| unreadable(file, error).to_string()).collect(),
        done: cut_off.map_or(ExitStatus::Ok, |_error| ExitStatus::Incomplete),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use clap::Parser;

    use super::{About, AgentSnapshot, ExitStatus, SnapshotArgs, Timestamp, caveat};

    #[test]
    fn the_end_of_an_agent_has_a_time_only_if_it_left_one() {
        for (ended, how) in [(true, "was ended"), (false, "does not run; its last sign of life was")] {
            let about = About {
                made_by: "0".to_owned(),
                node: "n".to_owned(),
                boot_id: "b".to_owned(),
                boot_wall_ns: 1,
                pid: 1,
                written_at: Timestamp(1),
                ended,
            };
            let said = format!("sandprobe run {how} 3m20s ago: this is its last state");
            assert_eq!(caveat(&about, false, Duration::from_secs(200)), Some(said));
        }
    }

    fn read(typed: &[&str]) -> anyhow::Result<AgentSnapshot> {
        #[derive(Debug, Parser)]
        struct Typed {
            #[command(flatten)]
            from: SnapshotArgs,
        }
        Typed::parse_from([&["it"], typed].concat()).from.read()
    }

    #[test]
    fn a_recording_that_was_cut_off_is_not_told_as_a_whole_one() {
        let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recordings/demo.jsonl");
        let lines = fs::read_to_string(whole).expect("the recording");
        let end = lines.trim_end().rfind('\n').expect("lines") + 1;
        let dir = tempfile::tempdir().expect("a folder");
        let cut = dir.path().join("cut.jsonl");
        fs::write(&cut, &lines[..end]).expect("a file");
        for (recording, done) in
            [(whole, ExitStatus::Ok), (cut.to_str().expect("a name"), ExitStatus::Incomplete)]
        {
            let snapshot = read(&["--recording", recording]).expect("what is whole");
            assert_eq!((snapshot.done, snapshot.findings.len()), (done, 3));
            assert_eq!(snapshot.caveats.is_empty(), done == ExitStatus::Ok, "{:?}", snapshot.caveats);
        }
    }

    #[test]
    fn a_state_of_another_format_is_not_called_damaged() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("findings.json");
        for (bytes, said, what_to_do) in [
            (r#"{"schema":99}"#, ": written in format 99 by a newer sandprobe; ", ": use that newer one"),
            (
                r#"{"schema":1}"#,
                ": written in format 1 by an older sandprobe; ",
                ": an agent of this version writes it anew",
            ),
            ("nonsense", " is damaged; an agent that runs writes it anew: ", ""),
        ] {
            fs::write(&file, bytes).expect("a file");
            let dir = dir.path().to_str().expect("a name");
            let why = read(&["--socket", "none", "--state-dir", dir]).expect_err("no state").to_string();
            let is_said = why.starts_with(&format!("{}{said}", file.display()));
            assert!(is_said && why.ends_with(what_to_do), "{why}");
        }
    }
}
