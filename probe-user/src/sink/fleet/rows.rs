//! The rows of one source, as files: one for each table and day.

use std::collections::{BTreeMap, btree_map::Entry};

use bytes::Bytes;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::Value;

use super::{
    BOOTS, Context, EVENTS, FINDINGS, RESTARTS, STARTS, TABLES, Table, Unwritable,
    cell::Cell,
    line::{self, Line},
    parquet::Writer,
};

/// A line that cannot be made into a row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("not JSON from sandprobe ({0})")]
    NotJson(serde_json::Error),
    #[error("it is not a line that sandprobe writes with -o json")]
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
/// The lines of `boot -o json` that are computed from these.
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

/// The number of events that a stream left out, from its own `stream.missed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) events: u64,
    /// The stream also missed an unknown number of events.
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
    /// Facts about the boots from other sources, by node and boot.
    contexts: &'a BTreeMap<(String, String), Context>,
    files: BTreeMap<(&'static str, Date), Writer>,
    missed: Missed,
    /// The latest row for each key, of the tables where a later row replaces an earlier one.
    latest: BTreeMap<(&'static str, Vec<Cell>), Vec<Cell>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(contexts: &'a BTreeMap<(String, String), Context>) -> Self {
        Self { contexts, files: BTreeMap::new(), missed: Missed::default(), latest: BTreeMap::new() }
    }

    /// Parses a line and adds its rows.
    pub(crate) fn add_line(&mut self, text: &[u8]) -> Result<(), Unusable> {
        let value: Value = serde_json::from_slice(text).map_err(Unusable::NotJson)?;
        self.add(&value)
    }

    pub(crate) fn add(&mut self, value: &Value) -> Result<(), Unusable> {
        for (member, table) in OF_BOOTS {
            if let Some(object) = value.get(member) {
                let row = self.row(table, object)?;
                return Ok(self.add_row(table, row)?);
            }
        }
        // The other lines of `boot -o json` are computed from these.
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

    /// The events that are missing in the source, by its own count.
    pub(crate) const fn missed(&self) -> Missed {
        self.missed
    }

    fn row(&self, table: &'static Table, value: &Value) -> Result<Vec<Cell>, Unusable> {
        let node = value["node"].as_str().unwrap_or_default().to_owned();
        let boot_id = value["boot_id"].as_str().unwrap_or_default().to_owned();
        let unknown = Context::default();
        let context = self.contexts.get(&(node, boot_id)).unwrap_or(&unknown);
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
        let Some(latest) = table.latest else { return self.write(table, row) };
        let key = table.key.iter().filter_map(|key| cell(table, &row, key).cloned()).collect();
        match self.latest.entry((table.name, key)) {
            Entry::Vacant(place) => {
                place.insert(row);
            }
            Entry::Occupied(mut known) => {
                if integer(table, known.get(), latest) <= integer(table, &row, latest) {
                    known.insert(row);
                }
            }
        }
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

/// Returns a file without rows for each table. From it, a query engine knows a table that has no other file.
pub(crate) fn empty() -> Result<Vec<File>, Unwritable> {
    let mut files = Vec::with_capacity(TABLES.len());
    for table in TABLES {
        let (bytes, rows) = Writer::new(table)?.finish()?;
        files.push(File { table, date: date(0), rows, bytes: Bytes::from(bytes) });
    }
    Ok(files)
}

fn table(name: &str) -> Option<&'static Table> {
    TABLES.into_iter().find(|table| table.name == name)
}

fn cell<'a>(table: &'static Table, row: &'a [Cell], name: &str) -> Option<&'a Cell> {
    table.columns().zip(row).find(|(column, _)| column.name == name).map(|(_, cell)| cell)
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
    let mut objects = OF_BOOTS.iter().filter_map(|(member, _)| value.get(member));
    objects.any(|it| it["node"].is_string() && it["boot_id"].is_string())
}

/// The boot that a line describes, and the facts about its node. Only lines of `boot -o json` have them.
pub(crate) fn context(value: &Value) -> Option<((String, String), Context)> {
    let boot = value.get("boot")?;
    let node = line::at(boot, "node")?.as_str()?.to_owned();
    let boot_id = line::at(boot, "boot_id")?.as_str()?.to_owned();
    Some(((node, boot_id), Context::of(boot)))
}
