//! DuckDB and chDB (ClickHouse as a library), which answer the questions of deploy/fleet in a test. Both come
//! from their Python packages (MIT, Apache-2.0), which pip checks against the sums below. They are run, never
//! shipped.

use crate::{pip, workspace};
use anyhow::Result;
use std::path::PathBuf;

/// The variable that says to the tests where the engines are.
pub(crate) const VARIABLE: &str = "SANDPROBE_ENGINES";

const DUCKDB: &str = "2.0.1";
const CHDB: &str = "26.9.0";
/// The packages' sums for x86_64 and aarch64, for DuckDB also for Python 3.11 and for later ones.
const DUCKDB_SUMS: &[&str] = &[
    "dd8961476eb9e048d1e784eb6bad7aad39304d72b4e4fd8c021f1863b7ee6425",
    "eb32b389d99d14cbbec4c110f58237c77eacefc65ef6f737619f413c97a91a77",
    "ba06918b64d4061bd9ed722dc10adf66f9a10f96426e2403db93a36f590ba3dc",
    "39ffeb136abed770a496e5592a464f18a07b1543e7ddb1ff6453215e179f1647",
];
const CHDB_SUMS: &[&str] = &[
    "46148d3fc1edd6d6f701922be0f18e2aa6e60349e418b430e69bbb87ab6b95a9",
    "707e2ec3fe0f7953bac97942eaeb7a1ed1d66b1e56ecef3f0aa2130f61f6e735",
];

/// Returns the folder with both, and fetches them if they are missing.
pub(crate) fn ensure() -> Result<PathBuf> {
    let tools = workspace::target_dir().join("tools");
    let dir = tools.join(format!("engines-{DUCKDB}-{CHDB}"));
    if dir.is_dir() {
        return Ok(dir);
    }
    println!("setup: fetching DuckDB and chDB");
    let list =
        [("duckdb", DUCKDB, DUCKDB_SUMS), ("chdb-core", CHDB, CHDB_SUMS)].map(|(name, version, sums)| {
            let sums: String = sums.iter().map(|sum| format!(" --hash=sha256:{sum}")).collect();
            format!("{name}=={version}{sums}\n")
        });
    pip::install(&list.concat(), &dir)?;
    Ok(dir)
}
