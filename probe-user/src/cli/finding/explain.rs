//! `sandprobe explain`.

pub(in crate::cli) mod text;

use anyhow::{anyhow, ensure};
use clap::{Args, Subcommand};

use crate::{
    cli::{ExitStatus, args::Form, output, say, snapshot::SnapshotArgs, start::PodStart},
    engine::incident::Incidents,
    model::change::Finding,
    sink::{escape::short_key, render::jsonl, select::findings},
};

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, override_usage = USAGE)]
pub(in crate::cli) struct Explain {
    #[command(subcommand)]
    other: Option<Other>,

    /// The key of the finding, or any part of it that is unique
    #[arg(required = true)]
    key: Option<String>,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

/// The flags of `pod` come after it.
const USAGE: &str = "\
sandprobe explain [OPTIONS] <KEY>
       sandprobe explain pod [OPTIONS] <[NAMESPACE/]NAME>";

/// What else can be explained.
#[derive(Debug, Subcommand)]
enum Other {
    /// Explain where the time of one pod's start went
    Pod(PodStart),
}

/// How many keys are listed if several findings match.
const LISTED: usize = 10;

impl Explain {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        if let Some(Other::Pod(pod)) = &self.other {
            ensure!(self.key.is_none(), "KEY and \"pod NAME\" exclude each other: give one of them");
            let is_plain = self.output == Form::Text && !self.from.is_typed();
            ensure!(is_plain, "put the flags after \"pod NAME\": they are its own");
            return pod.run();
        }
        let asked = self.key.as_deref().unwrap_or_default();
        let snapshot = self.from.read()?;
        for caveat in &snapshot.caveats {
            say(caveat);
        }
        let matching = findings::matching(&snapshot.findings, asked);
        let finding = match matching.as_slice() {
            [finding] => finding,
            [] => {
                return Err(anyhow!("no finding has {asked:?} in its key: see sandprobe findings --all"));
            }
            many => return Err(ambiguous(asked, many)),
        };
        let incidents = Incidents::of(&snapshot.findings);
        let mut bytes = match self.output {
            Form::Text => text::text(finding, &incidents, &snapshot).into_bytes(),
            Form::Json => {
                let mut bytes = Vec::new();
                jsonl::explained(finding, &incidents, &snapshot.label, &mut bytes);
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(snapshot.done)
    }
}

fn ambiguous(asked: &str, many: &[&Finding]) -> anyhow::Error {
    let keys: Vec<String> = many.iter().take(LISTED).map(|it| short_key(&it.key)).collect();
    let more = match many.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    anyhow!(
        "{} findings have {asked:?} in their key (sandprobe findings lists them with their pods): {}{more}",
        many.len(),
        keys.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Explain;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        explain: Explain,
    }

    /// Returns why the arguments are refused.
    fn refused(typed: &[&str]) -> String {
        let Typed { explain } =
            Typed::try_parse_from([&["explain"], typed].concat()).expect("it is understood");
        explain.run().expect_err("it is refused").to_string()
    }

    #[test]
    fn flags_before_pod_are_not_taken_for_a_key() {
        let behind = "put the flags after \"pod NAME\": they are its own";
        for flags in [["--recording", "x"], ["--socket", "x"], ["--state-dir", "x"], ["-o", "json"]] {
            assert_eq!(refused(&[&flags[..], &["pod", "job"]].concat()), behind, "{flags:?}");
        }
        let both = "KEY and \"pod NAME\" exclude each other: give one of them";
        assert_eq!(refused(&["leaked_address", "pod", "job"]), both);
        // In its own place the flag is the pod's: this file does not exist.
        let absent = refused(&["pod", "job", "--recording", "/nowhere/recording"]);
        assert!(absent.starts_with("cannot open /nowhere/recording"), "{absent}");
    }
}
