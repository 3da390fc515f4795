//! The views by which DuckDB reads the files.

use std::fmt::Write as _;

use super::{TABLES, Table};

/// Returns a view for each table. Of a row that was exported several times, the view has only the latest.
/// Events are left as they are, because there are many: a query over them drops the duplicates itself.
pub(crate) fn views() -> String {
    let mut text =
        "-- The tables of an export for DuckDB, which is to run in the export's folder (docs/fleet.md).\n"
            .to_owned();
    for Table { name, key, latest, .. } in TABLES {
        // Writing to a string does not fail.
        write!(
            text,
            "\nCREATE OR REPLACE VIEW {name} AS\nSELECT * EXCLUDE (filename)\n\
             FROM read_parquet('{name}/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true)"
        )
        .ok();
        if let Some(latest) = latest {
            let key = key.join(", ");
            write!(
                text,
                "\nQUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {latest} DESC, filename DESC) = 1"
            )
            .ok();
        }
        text += ";\n";
    }
    text
}
