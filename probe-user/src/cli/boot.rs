//! `sandprobe boot`: what each restart of this node cost.

mod replayed;
mod restarts;
mod table;
#[cfg_attr(not(feature = "live"), path = "boot/recording_only.rs")]
pub(super) mod this;
mod what_if;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use clap::Args;

use super::{
    ExitStatus,
    args::{Form, StateArgs},
    output,
    picture::Pictures,
    say,
};
use crate::{
    duration::positive_duration,
    engine::boot::report::{NodeBoot, RecoveryReport},
    model::{
        phase::Start,
        recovery::{BootRead, Grouping, Recovered, Recovery},
        time::Timestamp,
    },
    recording::Header,
    sink::{
        render::{chart::boot::chart, jsonl, recovery},
        state::history,
    },
};

#[derive(Debug, Args)]
pub(super) struct Boot {
    /// Show the boots of these recordings, in this order; needs no root and no history
    #[arg(long, value_name = "FILE", num_args = 1..)]
    replay: Vec<PathBuf>,

    /// Show the mean of each group of boots, and its difference from the first group, instead of the mean of
    /// all boots; groups are by "kernel", "runtime", "kubelet", or "label:KEY" (see "run --boot-label")
    #[arg(long, value_name = "WHAT")]
    group_by: Option<Grouping>,

    /// Show restarts of only the runtime or kubelet, instead of boots
    #[arg(long, conflicts_with_all = ["group_by", "target", "html", "perfetto"])]
    restarts: bool,

    /// How long a recovery may take, for all boots, instead of the target that the agent of each had; "!"
    /// marks each boot that took longer, and if the last one did, the exit code is 1
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    target: Option<Duration>,

    /// Compute when pods would have been back, with bounds, if one thing had been otherwise in each recorded
    /// boot: "host-network=[NAMESPACE/]NAME" (the pod uses the node's network), "image-present" (no image
    /// has to be pulled), or "cni-ready=-6s" (CNI calls succeed this much earlier)
    #[arg(long, value_name = "CHANGE", value_parser = what_if::question, requires = "replay",
        conflicts_with_all = ["group_by", "restarts", "target", "html", "perfetto"])]
    what_if: Option<what_if::Question>,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    pictures: Pictures,

    #[command(flatten)]
    state: StateArgs,

    #[command(flatten)]
    here: this::HereArgs,
}

/// The rules that were given as flags.
#[derive(Clone, Copy, Default)]
struct Asked {
    quiet: Option<Duration>,
    recovered: Option<Recovered>,
    target: Option<Duration>,
}

/// A row of the table.
pub(super) struct Row {
    node: String,
    recovery: Recovery,
    report: RecoveryReport,
    now: Timestamp,
    /// The starts of its pods; empty if it is not from a recording.
    starts: Vec<Start>,
}

impl Row {
    /// `now` is the time up to which it is known that nothing else happened.
    pub(super) fn new(node: String, recovery: Recovery, now: Timestamp) -> Self {
        let report = RecoveryReport::of(&recovery, now.max(recovery.seen_until));
        Self { node, recovery, report, now, starts: Vec::new() }
    }

    /// The boot of a recording, as it was seen until `now`.
    pub(super) fn of_recording(header: Header, mut recovery: Recovery, now: Timestamp) -> Self {
        let Header { node, boot_id, kernel, boot_wall_ns, .. } = header;
        recovery.boot.get_or_insert_with(|| BootRead {
            boot_id,
            kernel,
            boot_wall_ns,
            ..BootRead::default()
        });
        Self::new(node, recovery, now)
    }

    fn boot_id(&self) -> Option<&str> {
        self.recovery.boot.as_ref().map(|boot| boot.boot_id.as_str())
    }

    /// Applies these rules in place of the agent's, as far as they are given.
    fn with_rules(self, rules: Asked) -> Self {
        let Asked { quiet, recovered, target } = rules;
        let target = target.or(self.recovery.target);
        let quiet = quiet.unwrap_or(self.recovery.quiet);
        let recovered = recovered.unwrap_or(self.recovery.recovered);
        let recovery = Recovery { quiet, recovered, target, ..self.recovery };
        Self { starts: self.starts, ..Self::new(self.node, recovery, self.now) }
    }
}

pub(super) fn boots(rows: &[Row]) -> Vec<NodeBoot<'_>> {
    let boots = rows.iter().map(|Row { node, recovery, report, .. }| NodeBoot { node, recovery, report });
    boots.collect()
}

impl Boot {
    pub(super) fn run(&self, verbose: bool) -> anyhow::Result<ExitStatus> {
        if !self.replay.is_empty() {
            self.state.refuse_beside("--replay")?;
        }
        self.pictures.refuse_over(self.replay.iter().map(PathBuf::as_path))?;
        let (rows, is_whole) =
            if self.replay.is_empty() { self.kept()? } else { replayed::rows(&self.replay)? };
        let rules = self.here.rules()?;
        let rules = Asked { target: self.target.or(rules.target), ..rules };
        let rows: Vec<Row> = rows.into_iter().map(|row| row.with_rules(rules)).collect();
        if let Some(question) = &self.what_if {
            output::write(&mut question.answer(&rows, self.output)?)?;
            return Ok(if is_whole { ExitStatus::Ok } else { ExitStatus::Incomplete });
        }
        let boots = boots(&rows);
        let missed = self.target.and_then(|_| recovery::missed(boots.last()?.report));
        if let Some(missed) = &missed {
            say(&format!("the last boot {missed}"));
        }
        let done = if is_whole && missed.is_none() { ExitStatus::Ok } else { ExitStatus::Incomplete };
        let grouping = self.group_by.as_ref();
        if let Some(it @ Grouping::Label(key)) = grouping
            && boots.iter().all(|boot| it.of(boot.recovery).is_none())
        {
            say(&format!("no boot has the label {key}: all are in the group none"));
        }
        if self.pictures.are_wanted() {
            self.pictures.draw(&chart(&boots, grouping))?;
            return Ok(done);
        }
        let mut bytes = match self.output {
            Form::Text if self.restarts => restarts::text(&boots).into_bytes(),
            Form::Text => table::text(&boots, grouping, verbose).into_bytes(),
            Form::Json if self.restarts => jsonl::boot::restart_lines(&boots)?,
            Form::Json => jsonl::boot::lines(&boots, grouping)?,
        };
        output::write(&mut bytes)?;
        Ok(done)
    }

    /// The boots of the history, and this one.
    fn kept(&self) -> anyhow::Result<(Vec<Row>, bool)> {
        let dir = self.state.dir();
        let answered = self.here.agent_history(&self.state)?;
        let past = answered.unwrap_or_else(|| dir.map(history::read).unwrap_or_default());
        past.problems.iter().for_each(|problem| say(problem));
        let mut is_whole = past.problems.is_empty();
        // The node's files do not show restarts of a daemon.
        if self.restarts && past.history.records.is_empty() {
            return Err(no_history(dir));
        }
        let this = self.here.row(&past, self.restarts);
        let mut rows: Vec<Row> = Vec::new();
        for record in past.history.records {
            let beat = past.heartbeat.as_ref().filter(|beat| beat.boot_id == record.boot_id());
            let now = beat.map_or(Timestamp::ZERO, |beat| beat.at);
            rows.push(Row::new(record.node, record.recovery, now));
        }
        match this {
            Ok(Some((row, is_read))) => {
                is_whole &= is_read;
                if !rows.iter().any(|known| known.boot_id() == row.boot_id()) {
                    rows.push(row);
                }
            }
            // The last boot of the history is not the one that --target is about.
            Err(error) if self.target.is_some() => {
                return Err(error.context("this boot cannot be judged"));
            }
            Err(error) => {
                say(&format!("cannot show this boot: {error:#}"));
                is_whole = false;
            }
            Ok(None) => {}
        }
        if rows.is_empty() {
            return Err(no_history(dir));
        }
        Ok((rows, is_whole))
    }
}

fn no_history(dir: Option<&Path>) -> anyhow::Error {
    let place = dir.map_or_else(|| "--state-dir none".to_owned(), |dir| dir.display().to_string());
    anyhow!("no history of boots ({place}): sandprobe run keeps one; or give recordings with --replay")
}
