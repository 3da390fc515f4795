//! `sandprobe export`: what nodes saw as tables, in Parquet files or in ClickHouse (docs/fleet.md).

mod clickhouse;
mod folder;
mod source;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};

use super::{ExitStatus, args::made, client::AgentArgs, input::refuse_twice, output, say};
use crate::{
    sink::fleet::{self, Context, File},
    words::count::counted,
};
use clickhouse::{ClickHouse, ClickHouseArgs};
use source::{Exported, Source};

#[derive(Debug, Args)]
pub(super) struct Export {
    /// Recordings ("sandprobe record"), logs of events (the log file, or "-o json"), boots and restarts of
    /// daemons ("sandprobe boot -o json", "sandprobe boot --restarts -o json"), of any nodes; "-" is standard
    /// input. Without any, export what the running agent has
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write the tables as Parquet files below this directory
    #[arg(long, value_name = "DIR", value_parser = made())]
    parquet: Option<PathBuf>,

    #[command(flatten)]
    clickhouse: ClickHouseArgs,

    /// Export nothing; print what query engines need to know about the tables
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["files", "parquet", "clickhouse"])]
    print: Option<Printed>,

    #[command(flatten)]
    agent: AgentArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Printed {
    /// The tables and their columns, as Markdown
    Columns,
    /// The statements that make the tables in ClickHouse
    Clickhouse,
    /// The views by which DuckDB reads the Parquet files
    Duckdb,
}

/// What is known of each boot, by node and boot.
pub(super) type Contexts = BTreeMap<(String, String), Context>;

/// Where files go.
struct Destinations {
    folder: Option<PathBuf>,
    clickhouse: Option<ClickHouse>,
    /// Rows by table.
    rows: BTreeMap<&'static str, u64>,
    bytes: usize,
}

impl Export {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        if let Some(printed) = self.print {
            let text = match printed {
                Printed::Columns => fleet::columns(),
                Printed::Clickhouse => fleet::clickhouse::script(),
                Printed::Duckdb => fleet::duckdb::views(),
            };
            output::write(&mut text.into_bytes())?;
            return Ok(ExitStatus::Ok);
        }
        let clickhouse = self.clickhouse.open()?;
        if self.parquet.is_none() && clickhouse.is_none() {
            return Err(anyhow!("nowhere to export to: give --parquet DIR or --clickhouse URL"));
        }
        if !self.files.is_empty() && self.agent.is_typed() {
            return Err(anyhow!(
                "FILE and --socket exclude each other: export the agent's by a call of its own"
            ));
        }
        refuse_twice(&self.files)?;
        let mut contexts = Contexts::new();
        let sources = if self.files.is_empty() {
            vec![Source::of_agent(&self.agent, &mut contexts)?]
        } else {
            self.files.iter().map(|file| Source::of(file, &mut contexts)).collect::<anyhow::Result<_>>()?
        };
        if let Some((one, other)) = alike(&sources, &self.files) {
            return Err(anyhow!(
                "{} and {} begin with the same line, so the files of one would replace those of the other: give one of them",
                one.display(),
                other.display()
            ));
        }
        let mut to =
            Destinations { folder: self.parquet.clone(), clickhouse, rows: BTreeMap::new(), bytes: 0 };
        if let Some(clickhouse) = &mut to.clickhouse {
            clickhouse.make_tables()?;
        }
        if let Some(folder) = &to.folder {
            folder::make_tables(folder)?;
        }
        let mut done = ExitStatus::Ok;
        let count = sources.len();
        for source in sources {
            let Exported { name, files, problems } = source.export(&contexts)?;
            files.into_iter().try_for_each(|file| to.put(&name, &file))?;
            for problem in &problems {
                say(problem);
                done = ExitStatus::Incomplete;
            }
        }
        to.report(count)?;
        Ok(done)
    }
}

/// Finds two files that would be exported under the same name, such as a log and a copy of it.
fn alike<'a>(sources: &[Source], files: &'a [PathBuf]) -> Option<(&'a PathBuf, &'a PathBuf)> {
    let mut seen = BTreeMap::new();
    let mut named = sources.iter().zip(files).filter_map(|(source, file)| Some((source.name()?, file)));
    named.find_map(|(name, file)| seen.insert(name, file).map(|before| (before, file)))
}

impl Destinations {
    fn put(&mut self, name: &str, file: &File) -> anyhow::Result<()> {
        if let Some(folder) = &self.folder {
            folder::put(folder, name, file)?;
        }
        if let Some(clickhouse) = &mut self.clickhouse {
            clickhouse.load(name, file)?;
        }
        *self.rows.entry(file.table.name).or_default() += file.rows;
        self.bytes += file.bytes.len();
        Ok(())
    }

    /// Prints one line on standard output about what was exported.
    fn report(&self, sources: usize) -> anyhow::Result<()> {
        let rows: Vec<String> = self.rows.iter().map(|(table, rows)| format!("{rows} {table}")).collect();
        let rows = if rows.is_empty() { "nothing".to_owned() } else { rows.join(", ") };
        let sources = counted(u64::try_from(sources)?, "source");
        let line = format!("{rows} of {sources}, {} bytes of Parquet\n", self.bytes);
        output::write(&mut line.into_bytes()).map(drop)
    }
}
