//! The tables of ClickHouse, and the statement that fills one from a file.

use std::fmt::Write as _;

use super::{TABLES, Table, cell::Kind, column::Column};

/// The statements that make the missing tables, and add the missing columns to tables of an older version.
///
/// A row that is inserted again replaces the one with the same key (ReplacingMergeTree). So an export can be
/// repeated.
pub(crate) fn tables() -> impl Iterator<Item = String> {
    TABLES.into_iter().flat_map(|table| [create(table), extend(table)])
}

/// These statements as a script.
pub(crate) fn script() -> String {
    let head = "-- The tables of an export for ClickHouse, as `sandprobe export --clickhouse` makes them (docs/fleet.md).\n";
    tables().fold(head.to_owned(), |text, statement| format!("{text}\n{statement};\n"))
}

/// The statement whose data is a file of this table.
pub(crate) fn insert(table: &Table) -> String {
    format!("INSERT INTO {} FORMAT Parquet", table.name)
}

fn create(table: &Table) -> String {
    let mut text = format!("CREATE TABLE IF NOT EXISTS {}\n(\n", table.name);
    let columns: Vec<String> = table.columns().map(|it| format!("    {} {}", it.name, kind(it))).collect();
    let Table { key, latest, .. } = table;
    // Writing to a string does not fail.
    write!(
        text,
        "{}\n)\nENGINE = ReplacingMergeTree({})\nPARTITION BY toDate(ts)\nORDER BY ({})",
        columns.join(",\n"),
        latest.unwrap_or_default(),
        key.join(", ")
    )
    .ok();
    text
}

fn extend(table: &Table) -> String {
    let missing = table.columns().filter(|column| !table.key.contains(&column.name));
    let columns: Vec<String> =
        missing.map(|it| format!("    ADD COLUMN IF NOT EXISTS {} {}", it.name, kind(it))).collect();
    format!("ALTER TABLE {}\n{}", table.name, columns.join(",\n"))
}

fn kind(column: &Column) -> String {
    let kind = match column.kind {
        Kind::Name | Kind::Text => "String",
        Kind::Integer => "Int64",
        Kind::Flag => "Bool",
        Kind::Time => "DateTime64(9, 'UTC')",
        Kind::Map => "Map(LowCardinality(String), String)",
    };
    let kind = if column.is_required { kind.to_owned() } else { format!("Nullable({kind})") };
    if column.kind == Kind::Name { format!("LowCardinality({kind})") } else { kind }
}
