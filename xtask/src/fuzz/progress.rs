//! What libFuzzer says of a run, as a row of a table.

/// The last of it: `#5 DONE cov: 21 ft: 40 corp: 3/11b …`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Inputs that were tried.
    pub(super) runs: u64,
    /// Edges of the program that one of them reached.
    pub(super) edges: u64,
    /// Inputs that are kept, since each reached something more.
    pub(super) kept: u64,
}

impl Progress {
    pub(super) fn see(&mut self, line: &str) {
        if let Some(seen) = Self::of(line) {
            *self = seen;
        }
    }

    fn of(line: &str) -> Option<Self> {
        let (runs, rest) = line.strip_prefix('#')?.split_once(|it: char| !it.is_ascii_digit())?;
        let mut words = rest.split_ascii_whitespace();
        let edges = words.by_ref().skip_while(|word| *word != "cov:").nth(1)?;
        let corpus = words.skip_while(|word| *word != "corp:").nth(1)?;
        let (kept, _bytes) = corpus.split_once('/')?;
        Some(Self { runs: runs.parse().ok()?, edges: edges.parse().ok()?, kept: kept.parse().ok()? })
    }

    pub(super) fn heading() -> String {
        format!("{:<12} {:>12} {:>8} {:>8}  result", "fuzzer", "runs", "edges", "corpus")
    }

    pub(super) fn row(&self, name: &str, passed: bool) -> String {
        let Self { runs, edges, kept } = self;
        let result = if passed { "nothing failed" } else { "an input failed" };
        format!("{name:<12} {runs:>12} {edges:>8} {kept:>8}  {result}")
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn the_last_line_with_figures_counts() {
        let mut seen = Progress::default();
        for line in [
            "INFO: Seed: 2271",
            "#2\tINITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 30Mb",
            "#4194304\tDONE   cov: 5342 ft: 12345 corp: 320/120Kb lim: 4096 exec/s: 34 rss: 300Mb",
            "stat::number_of_executed_units: 4194304",
            "#7 no figures",
        ] {
            seen.see(line);
        }
        assert_eq!(seen, Progress { runs: 4_194_304, edges: 5342, kept: 320 });
        assert_eq!(seen.row("wire", true), "wire              4194304     5342      320  nothing failed");
        assert_eq!(Progress::heading().find("  result"), seen.row("wire", false).find("  an input failed"));
    }
}
