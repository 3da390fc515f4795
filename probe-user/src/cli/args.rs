//! Flags that several commands share.

use std::{
    env,
    num::NonZero,
    path::{Path, PathBuf},
};

use clap::{
    Args, ValueEnum,
    builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser},
};
use strum::VariantNames;

use crate::{
    model::change::ChangeKind,
    sink::select::{filter::Filter, rate::Rate},
    size::count,
};

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Aligned columns for people, in color on a terminal
    Text,
    /// One JSON object a line for programs (docs/events.md)
    Json,
}

/// Parses the path of a file or directory to create. Refuses "-", which is standard output for other flags:
/// nobody means a file of that name.
pub(super) fn made() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path == Path::new("-") {
            Err("it cannot go to standard output: give a name (\"./-\", if it is to be \"-\")")
        } else {
            Ok(path)
        }
    })
}

/// Parses `NAME` or `NAMESPACE/NAME`. Any other text would match no pod, and look like a pod without
/// findings.
pub(super) fn pod(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() <= 2 && parts.iter().all(|part| !part.is_empty()) {
        Ok(text.to_owned())
    } else {
        Err("not a pod: give NAME or NAMESPACE/NAME".to_owned())
    }
}

/// What is printed, and in which format.
#[derive(Debug, Args)]
pub(super) struct Shown {
    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub(super) output: Form,

    /// Print only events of pods in this namespace; may be repeated
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Print only events of this pod (NAME or NAMESPACE/NAME); may be repeated
    #[arg(long, value_name = "POD", value_parser = pod)]
    pod: Vec<String>,

    /// Print only events of containers with this name; may be repeated
    #[arg(long, value_name = "NAME")]
    container: Vec<String>,

    /// Print only events of this kind; may be repeated
    #[arg(long, value_name = "EVENT", value_parser = PossibleValuesParser::new(ChangeKind::VARIANTS))]
    event: Vec<String>,

    /// Print at most this many events a minute, besides all findings and gaps, and how many were left out
    #[arg(long, value_name = "N", value_parser = count)]
    event_rate: Option<NonZero<u32>>,
}

impl Shown {
    /// The limit of the stream, if there is one.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.event_rate.map(Rate::new)
    }

    /// Returns the flags that choose events, as they can be typed. Empty: all events are chosen.
    pub(super) fn choice(&self) -> String {
        let Self { namespace, pod, container, event, .. } = self;
        let flags = [("namespace", namespace), ("pod", pod), ("container", container), ("event", event)];
        let typed =
            flags.iter().flat_map(|(flag, given)| given.iter().map(move |it| format!("--{flag} {it}")));
        typed.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            namespaces: self.namespace.clone(),
            pods: self.pod.clone(),
            containers: self.container.clone(),
            events: self.event.clone(),
        }
    }
}

/// The default state directory.
pub(super) const STATE_DIR: &str = "/var/lib/sandprobe";

/// The default socket of the agent.
pub(super) const SOCKET: &str = "/run/sandprobe/sandprobe.sock";

/// The state directory, which the agent writes and other commands read.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// The directory in which "run" saves what "findings", "explain", "pods" and "boot" read; "none" for no
    /// directory [default: /var/lib/sandprobe]
    #[arg(long, value_name = "DIR", env = STATE_VARIABLE, value_parser = state_dir)]
    state_dir: Option<StateDir>,
}

/// The agent's pod sets both variables, so that commands in the pod find the agent.
const STATE_VARIABLE: &str = "SANDPROBE_STATE_DIR";
pub(super) const SOCKET_VARIABLE: &str = "SANDPROBE_SOCKET";

/// Whether the value was typed, not taken from the variable: clap does not tell the two apart.
pub(super) fn is_typed(value: Option<&Path>, variable: &str) -> bool {
    let Some(value) = value else { return false };
    env::var_os(variable).is_none_or(|of_variable| value.as_os_str() != of_variable)
}

/// A directory, or no state at all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateDir(Option<PathBuf>);

#[expect(clippy::unnecessary_wraps, reason = "the form of a value parser")]
fn state_dir(text: &str) -> Result<StateDir, String> {
    Ok(StateDir(Some(text).filter(|text| !matches!(*text, "" | "none")).map(PathBuf::from)))
}

impl StateArgs {
    pub(super) fn dir(&self) -> Option<&Path> {
        match &self.state_dir {
            Some(StateDir(dir)) => dir.as_deref(),
            None => Some(STATE_DIR.as_ref()),
        }
    }

    /// Whether the directory was typed.
    pub(super) fn is_typed(&self) -> bool {
        match &self.state_dir {
            None => false,
            Some(StateDir(None)) => is_typed(Some("none".as_ref()), STATE_VARIABLE),
            Some(StateDir(dir)) => is_typed(dir.as_deref(), STATE_VARIABLE),
        }
    }

    /// Refuses a typed directory beside `flag`, which gives something else to read.
    pub(super) fn refuse_beside(&self, flag: &str) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_typed(), "{flag} and --state-dir exclude each other: give one of them");
        Ok(())
    }
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn what_is_made_under_a_name_is_not_made_on_standard_output() {
        for line in
            ["run --log-file", "run --record", "record", "export --parquet", "verdict --copy-to", "man --dir"]
        {
            let parse = |name: &str| {
                Cli::try_parse_from(["sandprobe"].into_iter().chain(line.split(' ')).chain([name]))
            };
            let refused = parse("-").err().map(|why| why.to_string()).unwrap_or_default();
            assert!(refused.contains("it cannot go to standard output: give a name"), "{line}: {refused}");
            for name in ["./-", "a"] {
                assert!(parse(name).is_ok(), "{line} {name}");
            }
        }
    }

    /// 0 would make everything too slow, too late or too many; what is absurd is a mistake in the unit.
    #[test]
    fn a_limit_with_which_nothing_could_be_right_is_refused() {
        let count = "is not a whole number from 1 to 1000000";
        let (short, long) = ("is too short: give 1ms at least", "is too long: give 8760h at most");
        for (line, bad, why, good) in [
            ("run --cni-queue", "0", count, "1"),
            ("run --cni-queue", "4294967295", count, "20"),
            ("leaks --cni-queue", "0", count, "20"),
            ("watch --event-rate", "0", count, "1"),
            ("replay x --event-rate", "4294967295", count, "60"),
            ("run --cni-slow", "0s", short, "500ms"),
            ("run --stuck-after", "0ms", short, "1m"),
            ("run --boot-quiet", "0m", short, "1m"),
            ("run --boot-target", "0h", short, "5m"),
            ("boot --target", "0s", short, "30s"),
            ("boot --boot-quiet", "10000h", long, "1h"),
            ("leaks --leak-grace", "8761h", long, "0s"),
            ("run --hold", "61s", "more than 60 s", "0"),
            ("run --log-file x --log-size", "0KiB", "it must not be 0", "1MiB"),
            ("run --log-file x --log-keep", "1001", "1001 is not in 0..=1000", "0"),
            ("top --interval", "0s", "is not from 200ms to 1h", "1s"),
            ("top --once --size", "0x24", "is not a size such as 80x24", "80x24"),
            ("detach --linger", "8761h", long, "0s"),
        ] {
            let parse = |value: &str| {
                Cli::try_parse_from(["sandprobe"].into_iter().chain(line.split(' ')).chain([value]))
            };
            let refused = parse(bad).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(refused.contains(why), "{line} {bad}: {refused}");
            assert!(parse(good).is_ok(), "{line} {good}");
        }
    }
}
