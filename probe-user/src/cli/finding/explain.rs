//! `sandprobe explain`.

mod text;

use anyhow::anyhow;
use clap::{Args, Subcommand};

use crate::{
    cli::{ExitStatus, account::SnapshotArgs, args::Form, output, say, start::PodStart},
    model::change::Finding,
    sink::{escape::short_key, jsonl, select},
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(in crate::cli) struct Explain {
    #[command(subcommand)]
    other: Option<Other>,

    /// The finding's key, or any part of it that no other has
    #[arg(required = true)]
    key: Option<String>,

    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

/// What else can be explained.
#[derive(Debug, Subcommand)]
enum Other {
    /// Explain where the time of one pod's start went
    Pod(PodStart),
}

/// So many keys are listed when more than one is meant.
const LISTED: usize = 10;

impl Explain {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        if let Some(Other::Pod(pod)) = &self.other {
            return pod.run();
        }
        let asked = self.key.as_deref().unwrap_or_default();
        let account = self.from.read()?;
        for caveat in &account.caveats {
            say(caveat);
        }
        let matching = select::matching(&account.findings, asked);
        let finding = match matching.as_slice() {
            [finding] => finding,
            [] => {
                return Err(anyhow!("no finding has {asked:?} in its key: see sandprobe findings --all"));
            }
            many => return Err(ambiguous(asked, many)),
        };
        let mut bytes = match self.output {
            Form::Text => text::text(finding, &account).into_bytes(),
            Form::Json => {
                let mut bytes = Vec::new();
                jsonl::explained(finding, &account.label, &mut bytes);
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(ExitStatus::Ok)
    }
}

fn ambiguous(asked: &str, many: &[&Finding]) -> anyhow::Error {
    let keys: Vec<String> = many.iter().take(LISTED).map(|it| short_key(&it.key)).collect();
    let more = match many.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    anyhow!("{} findings have {asked:?} in their key: {}{more}", many.len(), keys.join(", "))
}
