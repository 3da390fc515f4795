//! `sandprobe findings`.

use clap::Args;

use super::select::Select;
use crate::{
    cli::{
        ExitStatus,
        args::Form,
        output, say,
        snapshot::{AgentSnapshot, SnapshotArgs},
        table::aligned,
    },
    model::{change::Finding, time::Timestamp},
    sink::{
        escape::{brief, short_key},
        jsonl,
        phase::pod,
        select,
        span::span,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Findings {
    #[command(flatten)]
    select: Select,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

impl Findings {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let snapshot = self.from.read()?;
        for caveat in &snapshot.caveats {
            say(caveat);
        }
        let mut findings: Vec<&Finding> =
            snapshot.findings.iter().filter(|it| self.select.keeps(it)).collect();
        select::sort(&mut findings);
        let mut bytes = match self.output {
            Form::Text => text(&findings, &snapshot).into_bytes(),
            Form::Json => {
                let mut bytes = Vec::new();
                findings.iter().for_each(|it| jsonl::finding(it, &snapshot.label, &mut bytes));
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(ExitStatus::Ok)
    }
}

fn text(findings: &[&Finding], snapshot: &AgentSnapshot) -> String {
    if findings.is_empty() {
        // The reason was printed already.
        let is_sure = snapshot.caveats.is_empty();
        return if is_sure { "no findings\n" } else { "no findings, as far as sandprobe can see\n" }
            .to_owned();
    }
    let row = |it: &&Finding| {
        [
            it.stage.into_str().to_owned(),
            it.severity.into_str().to_owned(),
            it.kind.into_str().to_owned(),
            it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
            match it.since {
                Timestamp::ZERO => "before boot".to_owned(),
                since => span(snapshot.now.since(since)),
            },
            brief(&it.kind.explain().summary()),
            short_key(&it.key),
        ]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    aligned(["STAGE", "SEVERITY", "KIND", "POD", "SINCE", "SUMMARY", "KEY"], &rows)
}
