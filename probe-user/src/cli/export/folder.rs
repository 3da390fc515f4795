//! Parquet files in a directory: `TABLE/date=YYYY-MM-DD/NAME.parquet`.

use std::{fs, path::Path};

use anyhow::Context as _;

use crate::{
    cli::output,
    sink::fleet::{self, File},
};

/// Makes an empty file of each table, so that a query engine finds all tables.
pub(super) fn make_tables(folder: &Path) -> anyhow::Result<()> {
    fleet::empty()?.iter().try_for_each(|file| put(folder, "none", file))
}

/// Replaces the file of this table, day and source.
pub(super) fn put(folder: &Path, name: &str, file: &File) -> anyhow::Result<()> {
    let dir = folder.join(file.table.name).join(format!("date={}", file.date));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    output::replace(&dir.join(format!("{name}.parquet")), &file.bytes)
}
