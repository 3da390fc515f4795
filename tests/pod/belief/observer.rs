//! Clients of the runtime beside the agent, and how late each learns of an end.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Seek as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tests::program;

/// A running client of the program that measures such clients. Dropping it ends it.
pub(super) struct Observer {
    child: Child,
    output: File,
}

impl Observer {
    /// `way`: `list` or `events`.
    pub(super) fn start(way: &str, socket: &Path) -> Result<Self> {
        let output = tempfile::tempfile()?;
        let mut command = Command::new(program::path("churn")?);
        let command = command.args(["client", way]).arg(socket).stdin(Stdio::null());
        let child = command.stdout(output.try_clone()?).spawn().context("start a client")?;
        Ok(Self { child, output })
    }

    /// Returns when it learned of the end of each container. None: the runtime has no events.
    pub(super) fn end(mut self) -> Result<Option<BTreeMap<String, u64>>> {
        let ended = self.child.try_wait()?;
        self.child.kill().ok();
        self.child.wait()?;
        let mut text = String::new();
        self.output.rewind()?;
        self.output.read_to_string(&mut text)?;
        let Some(status) = ended else {
            let parse = |line: &str| {
                let (id, at) = line.split_once(' ').with_context(|| format!("{line} is no end"))?;
                Ok((id.to_owned(), at.parse()?))
            };
            return text.lines().map(parse).collect::<Result<_>>().map(Some);
        };
        ensure!(status.success() && text.lines().count() == 1, "a client ended with {status}: {text}");
        Ok(None)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns a row of the table of lags: the median, the 99th percentile, and the maximum.
pub(super) fn row(way: &str, mut lags: Vec<Duration>) -> String {
    lags.sort_unstable();
    let at = |hundredths: usize| {
        let place = (lags.len() * hundredths).div_ceil(100).saturating_sub(1);
        lags.get(place).map_or_else(|| "-".to_owned(), |lag| format!("{:.1}", lag.as_secs_f64() * 1e3))
    };
    format!("{way:<32} {:>6} {:>10} {:>10} {:>10}", lags.len(), at(50), at(99), at(100))
}

/// Returns the heading of that table.
pub(super) fn head() -> String {
    let columns = ["ends", "p50, ms", "p99, ms", "max, ms"];
    format!(
        "{:<32} {:>6} {:>10} {:>10} {:>10}",
        "end known by", columns[0], columns[1], columns[2], columns[3]
    )
}
