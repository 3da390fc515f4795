//! `sandprobe run`, `watch` and `record`: one run of the agent, with different output.

mod assemble;
mod banner;
mod kubernetes;
mod log;
mod open_files;
mod opened;
mod otlp;
mod serve;
mod signals;
mod start;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use self::opened::Start;
use super::{
    node::{
        args::{ConfigArgs, HostArgs},
        identity::node_name,
    },
    pins::PinArgs,
};
use crate::{
    cli::{
        ExitStatus,
        args::{STATE_DIR, Shown, StateArgs, made},
    },
    config,
    confine::Mode,
    duration::{duration, positive_duration},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Run {
    #[command(flatten)]
    pub(super) probe: ProbeArgs,

    #[command(flatten)]
    state: StateArgs,

    #[command(flatten)]
    pins: PinArgs,

    #[command(flatten)]
    serve: serve::ServeArgs,

    #[command(flatten)]
    log: log::LogArgs,

    #[command(flatten)]
    kubernetes: kubernetes::KubernetesArgs,

    #[command(flatten)]
    otlp: otlp::OtlpArgs,

    /// Also record everything into this file, for "replay" and "boot --replay"; an existing file is replaced
    #[arg(long, value_name = "FILE", value_parser = made())]
    record: Option<PathBuf>,

    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Watch {
    #[command(flatten)]
    pub(super) probe: ProbeArgs,

    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Record {
    /// The file of the recording; an existing file is replaced
    #[arg(value_parser = made())]
    file: PathBuf,

    #[command(flatten)]
    pub(super) probe: ProbeArgs,

    #[command(flatten)]
    shown: Shown,
}

/// What is hooked, where, and how it is printed.
#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// Print every program that starts and ends, not only those of pods and their runtimes
    #[arg(long)]
    all_execs: bool,

    /// How long an event is held back until the name of its pod is known (1s, 500ms, 0)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = hold)]
    hold: Duration,

    /// The node's name in events; else $NODE_NAME, else the host name in small letters
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<String>,

    /// After a restart: how long the recovery may take, from the order to the last pod [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    boot_target: Option<Duration>,

    /// A label of this boot, by which "boot --group-by label:KEY" compares boots; may be repeated
    #[arg(long = "boot-label", value_name = "KEY=VALUE", value_parser = config::boot_label)]
    boot_labels: Vec<(String, String)>,

    /// Log the diagnostics of the eBPF programs, on standard error
    #[arg(long)]
    debug_bpf: bool,

    /// Whether each thread gives up the rights that it does not need after hooks are attached: capabilities,
    /// files, system calls
    #[arg(long, value_name = "HOW MUCH", default_value = "full")]
    confine: Mode,

    /// Whether to follow container runtimes over CRI, to compare what they say with what the kernel shows
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    cri: Cri,

    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    config: ConfigArgs,
}

/// Which runtimes are followed over CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cri {
    /// Runtimes that answer at the usual sockets, or at the sockets that they were started with
    Auto,
    /// None
    None,
}

/// The longest hold: events that are held back use memory.
const MAX_HOLD: Duration = Duration::from_secs(60);

fn hold(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if span > MAX_HOLD {
        return Err(format!("more than {} s", MAX_HOLD.as_secs()));
    }
    Ok(span)
}

impl ProbeArgs {
    /// The log of the eBPF programs is at the level below warnings.
    pub(super) fn verbose(&self) -> u8 {
        u8::from(self.debug_bpf)
    }
}

impl Run {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        Start {
            probe: &self.probe,
            shown: &self.shown,
            file: self.record.as_deref(),
            state_dir: self.state.dir(),
            past: self.state.dir(),
            pins: Some(&self.pins),
            serve: Some(&self.serve),
            log: self.log.file(),
            kubernetes: Some(&self.kubernetes),
            otlp: Some(&self.otlp),
            banner: true,
            ends_with_recording: false,
            outlives_terminal: true,
        }
        .run()
    }
}

impl Watch {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        Start {
            probe: &self.probe,
            shown: &self.shown,
            file: None,
            state_dir: None,
            past: Some(STATE_DIR.as_ref()),
            pins: None,
            serve: None,
            log: None,
            kubernetes: None,
            otlp: None,
            banner: false,
            ends_with_recording: false,
            outlives_terminal: false,
        }
        .run()
    }
}

impl Record {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        Start {
            probe: &self.probe,
            shown: &self.shown,
            file: Some(&self.file),
            state_dir: None,
            past: Some(STATE_DIR.as_ref()),
            pins: None,
            serve: None,
            log: None,
            kubernetes: None,
            otlp: None,
            banner: false,
            ends_with_recording: true,
            outlives_terminal: false,
        }
        .run()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::hold;

    #[test]
    fn a_hold_has_a_unit_and_a_bound() {
        assert_eq!(hold("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(hold("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(hold("0"), Ok(Duration::ZERO));
        for bad in ["", "s", "1", "-1s", "1h", "61s", "99999999999999999999s", "1 s", "é"] {
            assert!(hold(bad).is_err(), "{bad}");
        }
    }
}
