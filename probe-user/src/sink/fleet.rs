//! The data of many nodes, as tables for query engines. docs/fleet.md describes them.
//!
//! Rows are made from lines as `-o json` writes them (docs/events.md, docs/boot.md), whoever wrote the lines.
//! So a recording and the log of the same run give the same rows.
//!
//! **Invariant:** the same lines give the same bytes.

mod boot;
mod cell;
mod column;
mod event;
mod finding;
mod line;
mod parquet;
mod restart;
mod rows;
mod start;
#[cfg(test)]
mod tests;

pub(crate) mod clickhouse;
pub(crate) mod duckdb;

pub(crate) use line::Context;
pub(crate) use parquet::Unwritable;
pub(crate) use rows::{File, Missed, Rows, Unusable, context, empty, is_of_boots};

use std::fmt::Write as _;

use cell::Kind;
use column::{Column, From, name, text};

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// What a row is.
    row: &'static str,
    /// The columns of this table alone. [`COMMON`] comes before them.
    own: &'static [Column],
    /// The columns whose values together identify a row.
    key: &'static [&'static str],
    /// If several rows have the same key, the one with the latest time in this column counts.
    latest: Option<&'static str>,
}

pub(crate) const EVENTS: Table = Table {
    name: "events",
    row: "an event of the stream",
    own: &event::COLUMNS,
    key: &["event", "node", "boot_id", "boot_ns", "seq"],
    latest: None,
};
pub(crate) const STARTS: Table = Table {
    name: "starts",
    row: "a pod's start in one of its sandboxes",
    own: &start::COLUMNS,
    key: &["node", "boot_id", "sandbox"],
    latest: Some("ended_at"),
};
pub(crate) const FINDINGS: Table = Table {
    name: "findings",
    row: "a finding, as it was last reported",
    own: &finding::COLUMNS,
    key: &["node", "boot_id", "key"],
    latest: Some("changed_at"),
};
pub(crate) const BOOTS: Table = Table {
    name: "boots",
    row: "a boot of a node, with what is known of the recovery",
    own: &boot::COLUMNS,
    key: &["node", "boot_id"],
    latest: Some("seen_at"),
};
pub(crate) const RESTARTS: Table = Table {
    name: "restarts",
    row: "a restart of a runtime or of the kubelet alone, with what is known of it",
    own: &restart::COLUMNS,
    key: &["node", "boot_id", "program", "ran_since_ns"],
    latest: Some("seen_at"),
};

pub(crate) const TABLES: [&Table; 5] = [&EVENTS, &STARTS, &FINDINGS, &BOOTS, &RESTARTS];

/// The columns that every table has. Those about the node come from its boot (`boots`), as far as the sources
/// have them.
const COMMON: [Column; 6] = [
    name("node", &["node"], "the node's name").required(),
    text("boot_id", &["boot_id"], "its boot").required(),
    Column::of_boot("kernel", "release of the node's kernel"),
    Column::of_boot("runtime", "the container runtimes, by name and version"),
    Column::of_boot("kubelet", "the kubelet, by name and version"),
    Column::labels("labels", "the node's labels that the agent was given (`--boot-label`)"),
];

impl Table {
    fn columns(&self) -> impl Iterator<Item = &'static Column> {
        COMMON.iter().chain(self.own)
    }
}

/// The tables and their columns, as Markdown.
pub(crate) fn columns() -> String {
    let mut text = String::new();
    for table in TABLES {
        let Table { name, row, key, latest, .. } = table;
        let latest = latest.map(|it| format!(", the latest by `{it}`")).unwrap_or_default();
        // Writing to a string does not fail.
        write!(
            text,
            "### `{name}`\n\nA row is {row}: one for each `{}`{latest}.\n\n| column | type | meaning | from |\n|---|---|---|---|\n",
            key.join("`, `")
        )
        .ok();
        for Column { name, kind, is_required, from, meaning } in table.columns() {
            let kind = match kind {
                Kind::Name | Kind::Text => "text",
                Kind::Integer => "integer",
                Kind::Flag => "bool",
                Kind::Time => "time",
                Kind::Map => "map",
            };
            let null = if *is_required { "" } else { " or null" };
            let from = match from {
                From::Members(members) => {
                    members.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
                }
                From::Boot => "the boot".to_owned(),
                From::Made(_) => String::new(),
            };
            writeln!(text, "| `{name}` | {kind}{null} | {meaning} | {from} |").ok();
        }
        text.push('\n');
    }
    text
}
