//! The command line: parses the arguments, runs the command, and reports errors.
//!
//! **Invariant:** an error is one line on standard error; the exit code gives its kind.

mod args;
mod boot;
mod child;
#[cfg(unix)]
mod client;
mod cluster;
#[cfg(unix)]
mod diff;
#[cfg(feature = "live")]
mod export;
mod finding;
mod input;
#[cfg(unix)]
mod known;
mod manual;
mod mcp;
#[cfg(feature = "live")]
mod on_node;
mod output;
mod picture;
mod pods;
mod replay;
mod snapshot;
mod start;
mod stderr;
mod table;
#[cfg(feature = "live")]
mod top;
#[cfg(unix)]
mod verdict;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _, Write},
    process::ExitCode,
};

use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ErrorKind},
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use self::stderr::Stderr;
use crate::sink::{escape::escaped, render::text::cut};

/// Kernel timestamps for the life of pods: which pod each network namespace, cgroup, CNI call and process of
/// this node belongs to, as it happens.
#[derive(Debug, Parser)]
#[command(name = "sandprobe", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Directory with additional known problems [default: /etc/sandprobe/known]
    #[cfg(unix)]
    #[arg(long, global = true, value_name = "DIR")]
    known: Option<std::path::PathBuf>,

    /// Log more of what sandprobe itself does, on standard error; twice for everything. "boot" also lists the
    /// milestones of each boot
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "live")]
    #[command(flatten)]
    OnNode(on_node::Command),
    /// Replay a recording: print the same events again; needs no root and no kernel
    Replay(replay::Replay),
    /// List what is wrong on this node, as found by the running agent
    Findings(finding::Findings),
    /// Explain one finding: the evidence in order, the cause, how to repair it; or the start of one pod
    Explain(finding::Explain),
    /// List the pods of this node from its files, and how they started as seen by the running agent
    Pods(pods::Pods),
    /// List the problems that sandprobe knows by their words, or show one with its cause and repair
    #[cfg(unix)]
    Known(known::Known),
    /// Show what each restart of this node cost, from the reboot order until the last pod was back
    Boot(boot::Boot),
    /// Compare two recordings, before and after a change: how pods start, what is ordered for each, what is
    /// wrong; fails if the second is worse
    #[cfg(unix)]
    Diff(diff::Diff),
    /// Show live in a terminal what is wrong on this node, and how pods start, as the running agent sees it
    #[cfg(feature = "live")]
    Top(top::Top),
    /// Answer an AI agent about this node, as a server of the Model Context Protocol on standard input and
    /// output; read-only
    #[cfg(feature = "live")]
    Mcp(mcp::Mcp),
    /// Say in one line whether this node is well, for engines that write conditions of nodes
    #[cfg(unix)]
    Verdict(verdict::Verdict),
    /// Write what nodes saw as tables, in Parquet files or into ClickHouse, for questions over many nodes
    #[cfg(feature = "live")]
    Export(export::Export),
    /// Print the script that completes commands and flags in a shell
    Completions(manual::Completions),
    /// Print a page of the manual, or write all of it into a directory
    Man(manual::Man),
}

impl Command {
    /// Whether it explains findings, for which it needs the known problems.
    #[cfg(unix)]
    fn explains(&self) -> bool {
        match self {
            #[cfg(feature = "live")]
            Self::OnNode(_) | Self::Top(_) | Self::Export(_) => true,
            Self::Replay(_) | Self::Findings(_) | Self::Explain(_) | Self::Known(_) => true,
            Self::Pods(_)
            | Self::Boot(_)
            | Self::Diff(_)
            | Self::Verdict(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
            // The commands that it runs read them.
            #[cfg(feature = "live")]
            Self::Mcp(_) => false,
        }
    }

    /// The log level that the command's own flags ask for.
    fn verbose(&self) -> u8 {
        match self {
            #[cfg(feature = "live")]
            Self::OnNode(command) => command.verbose(),
            Self::Replay(_) | Self::Findings(_) | Self::Explain(_) | Self::Pods(_) | Self::Boot(_) => 0,
            #[cfg(feature = "live")]
            Self::Top(_) | Self::Mcp(_) | Self::Export(_) => 0,
            #[cfg(unix)]
            Self::Verdict(_) | Self::Known(_) | Self::Diff(_) => 0,
            Self::Completions(_) | Self::Man(_) => 0,
        }
    }
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or ended by a closed pipe; run, watch, record and top: ended by ctrl-C or SIGTERM (other commands die of them)
  1  done, but something is missing: doctor found a limit, a recording was cut off, a file ended early
  2  cannot run: wrong usage, unreadable input, a missing privilege or kernel feature";

/// How the program ends when it does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitStatus {
    /// Exit code 0.
    Ok,
    /// Exit code 1: something is missing, and a message has named it.
    Incomplete,
    /// Exit code 2: a message has given the reason.
    #[cfg(unix)]
    CannotRun,
}

const CANNOT: u8 = 2;

/// The longest message. An error may repeat what it found in a file.
const MAX_MESSAGE_CHARS: usize = 4000;

pub fn main(typed: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed: Vec<OsString> = typed.into_iter().collect();
    if cluster::is_called(typed.first().map(OsString::as_os_str)) {
        return cluster::main(typed);
    }
    let cli = match parse(typed) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, "sandprobe"),
    };
    log(cli.verbose.max(cli.command.verbose()));
    #[cfg(unix)]
    let is_whole = match cli.command.explains().then(|| known::read(cli.known.as_deref())) {
        None => true,
        Some(Ok(is_whole)) => is_whole,
        Some(Err(error)) => {
            say(&format!("{error:#}"));
            return ExitCode::from(CANNOT);
        }
    };
    let done = match cli.command {
        #[cfg(feature = "live")]
        Command::OnNode(command) => command.run(),
        Command::Replay(replay) => replay.run(),
        Command::Findings(findings) => findings.run(),
        Command::Explain(explain) => explain.run(),
        Command::Boot(boot) => boot.run(cli.verbose > 0),
        Command::Pods(pods) => pods.run(),
        #[cfg(unix)]
        Command::Diff(diff) => diff.run(),
        #[cfg(feature = "live")]
        Command::Top(top) => top.run(),
        #[cfg(feature = "live")]
        Command::Mcp(mcp) => mcp.run(cli.known),
        #[cfg(feature = "live")]
        Command::Export(export) => export.run(),
        #[cfg(unix)]
        Command::Known(known) => known.run(is_whole),
        #[cfg(unix)]
        Command::Verdict(verdict) => verdict.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    match done {
        Ok(ExitStatus::Ok) => ExitCode::SUCCESS,
        Ok(ExitStatus::Incomplete) => ExitCode::from(1),
        #[cfg(unix)]
        Ok(ExitStatus::CannotRun) => ExitCode::from(CANNOT),
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(CANNOT)
        }
    }
}

fn parse(typed: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command =
        without_variables(Cli::command(), |name| env::var_os(name).is_some_and(|value| value.is_empty()));
    let mut matches = command.try_get_matches_from_mut(typed)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// An environment variable that is empty counts as absent, as OpenTelemetry's specification has it.
fn without_variables(command: clap::Command, is_empty: impl Fn(&OsStr) -> bool + Copy) -> clap::Command {
    let command =
        command.mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&str>) } else { arg });
    command.mut_subcommands(|command| without_variables(command, is_empty))
}

/// Prints help and version as they are, and an error in one line.
fn usage(error: &clap::Error, program: &str) -> ExitCode {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return match output::reader(error.print().and_then(|()| io::stdout().flush())) {
                Ok(output::Reader::There | output::Reader::Gone) => ExitCode::SUCCESS,
                Err(error) => {
                    say(&format!("{error:#}"));
                    ExitCode::from(CANNOT)
                }
            };
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print().ok();
        }
        _ => say(&format!("{}; see {} --help", one_line(&text), command_of(error, program))),
    }
    ExitCode::from(CANNOT)
}

/// Returns the command that an error is about, as clap's usage line begins.
fn command_of(error: &clap::Error, program: &str) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let words = usage.trim_start_matches("Usage: ").split_whitespace();
    let words: Vec<&str> =
        words.take_while(|word| word.starts_with(|first: char| first.is_ascii_alphabetic())).collect();
    if words.is_empty() { program.to_owned() } else { words.join(" ") }
}

/// The first paragraph of clap's message, which names the error; the rest is about help.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// Prints one line on standard error.
fn say(text: &str) {
    // An error of standard error itself cannot be reported.
    Stderr.write_all(format!("sandprobe: {}\n", shown(text)).as_bytes()).ok();
}

/// Returns the text as one line of bounded length, with text from files and clients escaped.
fn shown(text: &str) -> String {
    cut(&escaped(&text.replace('\n', " ")), MAX_MESSAGE_CHARS)
}

/// Logs warnings only, unless more is asked for.
fn log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(|| Stderr).with_target(false);
    let log = log.with_ansi(io::stderr().is_terminal());
    // kube_client logs each failed request; sandprobe logs when failures begin and end.
    let client = if level == LevelFilter::TRACE { level } else { LevelFilter::OFF };
    let filter = Targets::new().with_default(level).with_target("kube_client", client);
    // It would report a failed write to standard error on standard error, and panic.
    log.log_internal_errors(false).finish().with(filter).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, MAX_MESSAGE_CHARS, one_line, shown};

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    /// clap treats a variable like the flag. The agent's pod sets variables, so a conflict would refuse a
    /// command there although nobody typed the flag. [`super::args::is_typed`] tells the two apart.
    #[test]
    fn no_flag_that_a_variable_sets_excludes_another_one() {
        fn conflicts(command: &clap::Command, found: &mut Vec<String>) -> usize {
            let mut seen = 0;
            for arg in command.get_arguments() {
                for other in command.get_arg_conflicts_with(arg) {
                    seen += 1;
                    if arg.get_env().or(other.get_env()).is_some() {
                        found.push(format!("{}: {arg} and {other}", command.get_name()));
                    }
                }
            }
            seen + command.get_subcommands().map(|command| conflicts(command, found)).sum::<usize>()
        }
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        assert!(conflicts(&command, &mut found) > 5, "clap tells of the conflicts");
        assert_eq!(found, [""; 0]);
    }

    #[test]
    #[cfg(feature = "live")]
    fn an_empty_variable_counts_as_absent() {
        use std::collections::BTreeSet;

        use super::without_variables;

        /// The variables of all commands.
        fn variables(command: &clap::Command) -> BTreeSet<String> {
            let own = command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned()));
            own.chain(command.get_subcommands().flat_map(variables)).collect()
        }

        let mut expected = variables(&Cli::command());
        for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "SANDPROBE_CONFIG"] {
            let rest = without_variables(Cli::command(), |it| it == name);
            assert!(expected.remove(name), "{expected:?}");
            assert_eq!(variables(&rest), expected);
            expected.insert(name.to_owned());
        }
        assert!(variables(&without_variables(Cli::command(), |_| true)).is_empty());
    }

    #[test]
    fn a_message_is_cut_where_it_is_too_long() {
        let long = shown(&"\u{1b}é".repeat(100_000));
        assert!(long.starts_with("\\u{1b}é") && long.ends_with('…'), "{long}");
        assert_eq!(long.chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn a_message_becomes_one_line() {
        let message = "error: the following required arguments were not provided:\n  <FILE>\n\nUsage: x\n";
        assert_eq!(one_line(message), "the following required arguments were not provided: <FILE>");
    }
}
