//! `sandprobe findings`.

use std::fmt::Write as _;

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
    engine::incident::{Incident, Incidents, Member},
    model::{change::Finding, finding::Stage, time::Timestamp},
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
        let incidents = Incidents::of(&snapshot.findings);
        let mut bytes = match self.output {
            Form::Text => text(&incidents, &self.select, &snapshot).into_bytes(),
            Form::Json => {
                let mut findings: Vec<&Finding> =
                    snapshot.findings.iter().filter(|it| self.select.keeps(it)).collect();
                select::sort(&mut findings);
                let mut bytes = Vec::new();
                findings.iter().for_each(|it| jsonl::placed(it, &incidents, &snapshot.label, &mut bytes));
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(ExitStatus::Ok)
    }
}

/// The selected findings, those of an incident one below the other, each effect with a line that says what led to it.
fn text(incidents: &Incidents<'_>, select: &Select, snapshot: &AgentSnapshot) -> String {
    let mut all = incidents.all();
    all.retain(|it| it.members.iter().any(|it| select.keeps(it.finding)));
    if all.is_empty() {
        // The reason was printed already.
        let is_sure = snapshot.caveats.is_empty();
        return if is_sure { "no findings\n" } else { "no findings, as far as sandprobe can see\n" }
            .to_owned();
    }
    select::sort_incidents(&mut all);
    let listed: Vec<_> = all.iter().flat_map(|it| listed(it, select)).collect();
    let rows: Vec<_> = listed.iter().map(|it| row(it, snapshot)).collect();
    let table = aligned(HEADINGS, &rows);
    let mut lines = table.lines();
    let heading = lines.next().unwrap_or_default();
    let column = heading.find("KIND").unwrap_or_default();
    let mut text = format!("{heading}\n");
    for (line, it) in lines.zip(&listed) {
        _ = writeln!(text, "{line}");
        if let Some(because) = because(it) {
            _ = writeln!(text, "{:width$}{because}", "", width = column + INDENT * it.depth);
        }
    }
    text
}

const HEADINGS: [&str; 7] = ["STAGE", "SEVERITY", "KIND", "POD", "SINCE", "SUMMARY", "KEY"];

/// Columns by which an effect stands to the right of its cause.
const INDENT: usize = 2;

/// A member of an incident that is listed.
struct Listed<'a, 'i> {
    member: &'i Member<'a>,
    /// How many of the findings between it and the root are listed.
    depth: usize,
    /// Whether the first of its causes is listed.
    follows: bool,
}

fn listed<'a, 'i>(incident: &'i Incident<'a>, select: &Select) -> Vec<Listed<'a, 'i>> {
    // The members from the root to the one before, and whether each is listed.
    let mut above: Vec<bool> = Vec::new();
    let mut listed = Vec::new();
    for member in &incident.members {
        above.truncate(member.depth);
        let depth = above.iter().filter(|is_listed| **is_listed).count();
        let follows = above.last().copied().unwrap_or(false);
        let is_listed = select.keeps(member.finding);
        above.push(is_listed);
        if is_listed {
            listed.push(Listed { member, depth, follows });
        }
    }
    listed
}

fn row(Listed { member, depth, .. }: &Listed<'_, '_>, snapshot: &AgentSnapshot) -> [String; 7] {
    let it = member.finding;
    [
        it.stage.into_str().to_owned(),
        it.severity.into_str().to_owned(),
        format!("{:width$}{}", "", it.kind.into_str(), width = INDENT * depth),
        it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
        match it.since {
            Timestamp::ZERO => "before boot".to_owned(),
            since => span(snapshot.now.since(since)),
        },
        brief(&it.kind.explain().summary()),
        short_key(&it.key),
    ]
}

/// What led to it, in one line. A cause in the list is named by its kind, another one by its key.
fn because(Listed { member, follows, .. }: &Listed<'_, '_>) -> Option<String> {
    let named = |it: &Finding| match (*follows, it.stage) {
        (true, _) => it.kind.into_str().to_owned(),
        (false, Stage::Closed) => format!("{} (closed)", short_key(&it.key)),
        (false, Stage::Candidate | Stage::Confirmed) => short_key(&it.key),
    };
    if let Some(with) = member.with {
        return Some(format!("of the same sandbox as {}", named(with)));
    }
    let cause = member.causes.last()?;
    let more = match member.causes.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!("caused by {}{more}: {}", named(cause.finding), cause.why))
}
