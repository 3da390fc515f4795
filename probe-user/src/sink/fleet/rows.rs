//! The rows of one source, as files: one for each table and day.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::Value;

use super::{
    BOOTS, Context, EVENTS, FINDINGS, RESTARTS, STARTS, TABLES, Table, Unwritable,
    cell::Cell,
    column::Column,
    line::{self, Line},
    parquet::Writer,
};

/// A line of which no row can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it is no line of sandprobe's JSON ({0})")]
    NotJson(serde_json::Error),
    #[error("it is none that sandprobe writes with -o json")]
    Unknown,
    #[error("it has schema {0}, and this sandprobe knows 1")]
    Schema(u64),
    #[error("it has {0}")]
    Lacks(String),
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
}

/// The lines of `boot -o json` that are rows, by their members.
const OF_BOOTS: [(&str, &Table); 2] = [("boot", &BOOTS), ("restart", &RESTARTS)];
/// Those that are made of them.
const SUMMARIES: [&str; 4] = ["average", "statistics", "group", "restart_statistics"];

/// A file of a table.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) table: &'static Table,
    /// The day of its rows, UTC.
    pub(crate) date: Date,
    pub(crate) rows: u64,
    pub(crate) bytes: Bytes,
}

/// Events that a stream left out, as it says itself (`stream.missed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) events: u64,
    /// It also says that it does not know how many.
    pub(crate) and_more: bool,
}

impl Missed {
    fn add(&mut self, events: Option<u64>) {
        self.events = self.events.saturating_add(events.unwrap_or_default());
        self.and_more |= events.is_none();
    }
}

/// The rows of a source.
pub(crate) struct Rows<'a> {
    /// What other sources say of the boots: by node and boot.
    contexts: &'a BTreeMap<(String, String), Context>,
    files: BTreeMap<(&'static str, Date), Writer>,
    missed: Missed,
    /// What is told several times has one row, as it was told last: by its key.
    latest: BTreeMap<(&'static str, Vec<Cell>), Vec<Cell>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(contexts: &'a BTreeMap<(String, String), Context>) -> Self {
        Self { contexts, files: BTreeMap::new(), missed: Missed::default(), latest: BTreeMap::new() }
    }

    /// Adds what a line tells.
    pub(crate) fn add_line(&mut self, text: &[u8]) -> Result<(), Unusable> {
        let value: Value = serde_json::from_slice(text).map_err(Unusable::NotJson)?;
        self.add(&value)
    }

    pub(crate) fn add(&mut self, value: &Value) -> Result<(), Unusable> {
        for (member, table) in OF_BOOTS {
            if let Some(told) = value.get(member) {
                let row = self.row(table, told)?;
                return Ok(self.add_row(table, row)?);
            }
        }
        // The other lines of `boot -o json` are made of these.
        if SUMMARIES.iter().any(|member| value.get(member).is_some()) {
            return Ok(());
        }
        match value["schema"].as_u64() {
            Some(1) => {}
            Some(other) => return Err(Unusable::Schema(other)),
            None => return Err(Unusable::Unknown),
        }
        let event = value.get("event").and_then(Value::as_str);
        if event.is_some_and(|event| event.starts_with("stream.")) {
            if event == Some("stream.missed") {
                self.missed.add(value["stream"]["missed"].as_str().and_then(|missed| missed.parse().ok()));
            }
            return Ok(());
        }
        let tables = [
            event.map(|_| &EVENTS),
            value.get("start").map(|_| &STARTS),
            value.get("finding").map(|_| &FINDINGS),
        ];
        let rows = tables.into_iter().flatten().map(|table| Ok((table, self.row(table, value)?)));
        let rows = rows.collect::<Result<Vec<_>, Unusable>>()?;
        if rows.is_empty() {
            return Err(Unusable::Unknown);
        }
        // A line has all of its rows or none.
        rows.into_iter().try_for_each(|(table, row)| self.add_row(table, row)).map_err(Unusable::from)
    }

    /// What the source itself says is missing in it.
    pub(crate) const fn missed(&self) -> Missed {
        self.missed
    }

    fn row(&self, table: &'static Table, value: &Value) -> Result<Vec<Cell>, Unusable> {
        let member = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let unknown = Context::default();
        let context = self.contexts.get(&(member("node"), member("boot_id"))).unwrap_or(&unknown);
        let line = Line { value, context };
        let row: Vec<Cell> = table.columns().map(|column| column.value(&line)).collect();
        if let Some((lacking, _)) =
            table.columns().zip(&row).find(|(column, cell)| column.is_required && **cell == Cell::Null)
        {
            return Err(Unusable::Lacks(lacking.lack()));
        }
        Ok(row)
    }

    fn add_row(&mut self, table: &'static Table, row: Vec<Cell>) -> Result<(), Unwritable> {
        if table.latest.is_none() {
            return self.write(table, row);
        }
        let key = table.key.iter().filter_map(|key| cell(table, &row, key).cloned()).collect();
        let known = self.latest.entry((table.name, key));
        let moment = |row: &[Cell]| table.latest.and_then(|column| integer(table, row, column));
        let new = moment(&row);
        known
            .and_modify(|known| {
                if moment(known) <= new {
                    known.clone_from(&row);
                }
            })
            .or_insert(row);
        Ok(())
    }

    fn write(&mut self, table: &'static Table, row: Vec<Cell>) -> Result<(), Unwritable> {
        let date = date(integer(table, &row, "ts").unwrap_or_default());
        match self.files.get_mut(&(table.name, date)) {
            Some(file) => file.push(row),
            None => {
                let mut file = Writer::new(table)?;
                file.push(row)?;
                self.files.insert((table.name, date), file);
                Ok(())
            }
        }
    }

    /// The files, in the order of the tables and days.
    pub(crate) fn finish(mut self) -> Result<Vec<File>, Unwritable> {
        for ((name, _), row) in std::mem::take(&mut self.latest) {
            if let Some(table) = table(name) {
                self.write(table, row)?;
            }
        }
        let mut files = Vec::new();
        for ((name, date), writer) in self.files {
            let (bytes, rows) = writer.finish()?;
            let bytes = Bytes::from(bytes);
            files.extend(table(name).map(|table| File { table, date, rows, bytes }));
        }
        Ok(files)
    }
}

/// A file of each table without rows: by these an engine knows a table of which there are none.
pub(crate) fn empty() -> Result<Vec<File>, Unwritable> {
    let file = |table| {
        let (bytes, rows) = Writer::new(table)?.finish()?;
        Ok(File { table, date: date(0), rows, bytes: Bytes::from(bytes) })
    };
    TABLES.into_iter().map(file).collect()
}

fn table(name: &str) -> Option<&'static Table> {
    TABLES.into_iter().find(|table| table.name == name)
}

fn cell<'a>(table: &'static Table, row: &'a [Cell], name: &str) -> Option<&'a Cell> {
    let is_it = |(column, _): &(&Column, &Cell)| column.name == name;
    table.columns().zip(row).find(is_it).map(|(_, cell)| cell)
}

fn integer(table: &'static Table, row: &[Cell], name: &str) -> Option<i64> {
    match cell(table, row, name) {
        Some(Cell::Integer(number)) => Some(*number),
        Some(Cell::Null | Cell::Text(_) | Cell::Flag(_) | Cell::Map(_)) | None => None,
    }
}

/// The day of a time, UTC.
fn date(at_ns: i64) -> Date {
    Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or_default().to_zoned(TimeZone::UTC).date()
}

/// Whether it is a boot or a restart, as `boot -o json` writes them.
pub(crate) fn is_of_boots(value: &Value) -> bool {
    let told = OF_BOOTS.iter().filter_map(|(member, _)| value.get(member));
    told.into_iter().any(|it| it["node"].is_string() && it["boot_id"].is_string())
}

/// The boot that a line tells of, with what it says of the node: only lines of `boot -o json` do.
pub(crate) fn context(value: &Value) -> Option<((String, String), Context)> {
    let boot = value.get("boot")?;
    let member = |name: &str| line::at(boot, name).and_then(Value::as_str).map(str::to_owned);
    Some(((member("node")?, member("boot_id")?), Context::of(boot)))
}
