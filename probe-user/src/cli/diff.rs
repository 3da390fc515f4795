//! `sandprobe diff`: two recordings side by side, before and after a change of the node.

mod interval;
mod recorded;
mod row;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use self::{
    recorded::Recorded,
    row::{Limits, Of, Row, Side, Verdict, rows},
};
use super::{ExitStatus, args::Form, output, say, table::aligned};
use crate::{
    model::scalar::is_default,
    sink::{escape::escaped, span::span},
    words::count::counted,
};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Diff {
    /// The recording before the change; "-" is standard input
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The recording after it
    #[arg(value_name = "B")]
    after: PathBuf,

    /// Allowed increase in percent. Phases: of A's median start time. Other rows: of A's value
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = clap::value_parser!(u32).range(..=1000))]
    limit: u32,

    /// Minimum number of samples (starts, pods or ADDs) in each recording
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    min_pods: u32,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  B is no worse than A
  1  B is worse by more than the limit, or has a finding of a kind that A has not, or not as severe
  2  a recording cannot be read, was cut off or has gaps, or there are too few starts or pods to tell; and nothing that was compared is worse";

/// The last line of the JSON.
#[derive(Serialize)]
struct Summary<'a> {
    of: &'static str,
    verdict: &'static str,
    /// The rows that are worse.
    worse: Vec<&'a str>,
    limit_percent: u32,
    min_pods: u32,
    a: About<'a>,
    b: About<'a>,
}

/// What a recording is.
#[derive(Serialize)]
struct About<'a> {
    file: String,
    node: &'a str,
    kernel: &'a str,
    boot_id: &'a str,
    pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_off: Option<&'a str>,
    #[serde(skip_serializing_if = "is_default")]
    gaps: u64,
}

impl Diff {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        if self.before == self.after && self.before == Path::new("-") {
            bail!("only one of A and B can be \"-\", standard input: give the other as a file");
        }
        let a = Recorded::read(&self.before)?;
        let b = Recorded::read(&self.after)?;
        let pods = usize::try_from(self.min_pods)?;
        let rows = rows(&a, &b, Limits { percent: self.limit, pods, rows: 1 });
        let worse: Vec<&Row> = rows.iter().filter(|row| row.verdict.is_worse()).collect();
        for (file, it) in [(&self.before, &a), (&self.after, &b)] {
            it.cut_off.iter().for_each(|problem| say(problem));
            if it.gaps > 0 {
                let gaps = counted(it.gaps, "gap");
                say(&format!(
                    "{}: {gaps}, in which records of pods were lost: record it again",
                    file.display()
                ));
            }
        }
        let mut few = names(&rows, Verdict::TooFew);
        few.retain(|name| row::NEEDED.contains(name));
        let unknown = names(&rows, Verdict::Unknown);
        if !unknown.is_empty() {
            say(&format!(
                "cannot tell of {}: a recording may have missed it, or B sees less",
                unknown.join(", ")
            ));
        }
        if !few.is_empty() {
            say(&format!(
                "too few to tell of {}: both recordings need {} (--min-pods)",
                few.join(", "),
                self.min_pods
            ));
        }
        let (done, verdict) = if !worse.is_empty() {
            (ExitStatus::Incomplete, "worse")
        } else if few.is_empty() && unknown.is_empty() && !a.is_partial() && !b.is_partial() {
            (ExitStatus::Ok, "no_worse")
        } else {
            (ExitStatus::CannotRun, "unknown")
        };
        let worse: Vec<&str> = worse.iter().map(|row| row.name.as_str()).collect();
        let mut bytes = match self.output {
            Form::Text => self.text(&a, &b, &rows, &worse).into_bytes(),
            Form::Json => {
                let [a, b] = [(&self.before, &a), (&self.after, &b)].map(|(file, it)| About::of(file, it));
                let summary = Summary {
                    of: "verdict",
                    verdict,
                    worse,
                    limit_percent: self.limit,
                    min_pods: self.min_pods,
                    a,
                    b,
                };
                json(&rows, &summary)?
            }
        };
        output::write(&mut bytes)?;
        Ok(done)
    }

    fn text(&self, a: &Recorded, b: &Recorded, rows: &[Row], worse: &[&str]) -> String {
        let mut text = String::new();
        for (name, file, it) in [("A", &self.before, a), ("B", &self.after, b)] {
            let file = file.display().to_string();
            let pods = counted(u64::try_from(it.pods.len()).unwrap_or(u64::MAX), "pod");
            let [file, node, kernel] = [&file, &it.header.node, &it.header.kernel].map(|it| escaped(it));
            text += &format!("{name}  {file}: {pods} of {node}, Linux {kernel}\n");
        }
        for (of, heading) in [(Of::Start, "PHASE"), (Of::Pod, "ORDERS"), (Of::Finding, "FINDING")] {
            let cells: Vec<_> = rows.iter().filter(|row| row.of == of).map(Row::cells).collect();
            if !cells.is_empty() {
                text += "\n";
                text += &aligned([heading, "A (N)", "B (N)", "B - A", "INTERVAL", "VERDICT"], &cells);
            }
        }
        text.push('\n');
        text += &match worse {
            [] => format!("nothing that could be compared is worse in B by more than {} %\n", self.limit),
            worse => format!("worse in B: {}\n", worse.join(", ")),
        };
        text
    }
}

impl<'a> About<'a> {
    fn of(file: &Path, it: &'a Recorded) -> Self {
        let header = &it.header;
        Self {
            file: file.display().to_string(),
            node: &header.node,
            kernel: &header.kernel,
            boot_id: &header.boot_id,
            pods: it.pods.len(),
            cut_off: it.cut_off.as_deref(),
            gaps: it.gaps,
        }
    }
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let of = self.of;
        [
            self.name.clone(),
            self.side(self.a),
            self.side(self.b),
            self.difference.map_or_else(|| "-".to_owned(), |it| signed(of, it)),
            self.interval.map_or_else(
                || "-".to_owned(),
                |[low, high]| format!("{} to {}", signed(of, low), signed(of, high)),
            ),
            self.verdict.word().to_owned(),
        ]
    }

    /// The number and of how many it is; of findings how many there are and how many each pod has.
    fn side(&self, side: Side) -> String {
        let value = side.value.map(|it| plain(self.of, it));
        match (self.of, value) {
            (Of::Start | Of::Pod, value) => format!("{} ({})", value.as_deref().unwrap_or("-"), side.count),
            (Of::Finding, Some(value)) => format!("{} ({value} / pod)", side.count),
            (Of::Finding, None) => side.count.to_string(),
        }
    }
}

fn names(rows: &[Row], verdict: Verdict) -> Vec<&str> {
    rows.iter().filter(|row| row.verdict == verdict).map(|row| row.name.as_str()).collect()
}

fn plain(of: Of, value: f64) -> String {
    match of {
        Of::Start => span(Duration::try_from_secs_f64(value).unwrap_or_default()),
        Of::Pod | Of::Finding => format!("{value:.2}"),
    }
}

fn signed(of: Of, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    format!("{sign}{}", plain(of, value.abs()))
}

fn json(rows: &[Row], summary: &Summary<'_>) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut bytes, row)?;
        bytes.push(b'\n');
    }
    serde_json::to_writer(&mut bytes, summary)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests;
