//! `sandprobe findings`.

use clap::Args;

use super::select::Select;
use crate::{
    cli::{
        ExitStatus,
        account::{AgentSnapshot, SnapshotArgs},
        args::Form,
        output, say,
        table::aligned,
    },
    model::{change::Finding, time::Timestamp},
    sink::{
        escape::{brief, short_key},
        jsonl,
        phase::pod,
        select,
        span::span,
        verdict::summary,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Findings {
    #[command(flatten)]
    select: Select,

    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

impl Findings {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let account = self.from.read()?;
        for caveat in &account.caveats {
            say(caveat);
        }
        let mut findings: Vec<&Finding> =
            account.findings.iter().filter(|it| self.select.keeps(it)).collect();
        select::sort(&mut findings);
        let mut bytes = match self.output {
            Form::Text => text(&findings, &account).into_bytes(),
            Form::Json => {
                let mut bytes = Vec::new();
                findings.iter().for_each(|it| jsonl::finding(it, &account.label, &mut bytes));
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(ExitStatus::Ok)
    }
}

fn text(findings: &[&Finding], account: &AgentSnapshot) -> String {
    if findings.is_empty() {
        // Why not, was said.
        let is_sure = account.caveats.is_empty();
        return if is_sure { "no findings\n" } else { "no findings, as far as can be seen\n" }.to_owned();
    }
    let row = |it: &&Finding| {
        [
            it.stage.into_str().to_owned(),
            it.severity.into_str().to_owned(),
            it.kind.into_str().to_owned(),
            it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            match it.since {
                Timestamp::ZERO => "before boot".to_owned(),
                since => span(account.now.since(since)),
            },
            brief(&summary(&it.kind)),
            short_key(&it.key),
        ]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    aligned(["STAGE", "SEVERITY", "KIND", "POD", "SINCE", "SUMMARY", "KEY"], &rows)
}
