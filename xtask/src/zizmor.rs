//! zizmor, which finds mistakes and risks in GitHub's workflows. It comes from its Python package (MIT),
//! which pip checks against the sums below. It is run, never shipped.

use crate::{pip, workspace};
use anyhow::Result;
use std::path::PathBuf;

const VERSION: &str = "1.32.0";
/// The packages' sums for x86_64 and aarch64.
const SUMS: [&str; 2] = [
    "84a6acb975accc13408786a2bd274b572537ca19c933ebbc13e78f3988562071",
    "0cdd38fca6eb34ceb567548548d706332e3535ea66894b9168c048e03207b68c",
];

/// Returns the program, and fetches it if it is missing.
pub(crate) fn ensure() -> Result<PathBuf> {
    let tools = workspace::target_dir().join("tools");
    let dir = tools.join(format!("zizmor-{VERSION}"));
    let program = dir.join("bin/zizmor");
    if program.is_file() {
        return Ok(program);
    }
    println!("setup: fetching zizmor");
    let sums = SUMS.map(|sum| format!(" --hash=sha256:{sum}")).concat();
    pip::install(&format!("zizmor=={VERSION}{sums}\n"), &dir)?;
    Ok(program)
}
