//! libFuzzer's figures of a run, as a row of a table.

/// The figures of the last line: `#5 DONE cov: 21 ft: 40 corp: 3/11b …`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of inputs that were tried.
    pub(super) runs: u64,
    /// Edges of the program that the inputs reached.
    pub(super) edges: u64,
    /// Inputs that are kept, because each reached something new.
    pub(super) kept: u64,
    /// An input was kept because it failed.
    pub(super) has_failed: bool,
}

/// How a fuzzer's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    InputFailed,
    /// It did not run to its end, and no input failed: it was not built, or somebody ended it.
    Broken,
}

impl Outcome {
    fn words(self) -> &'static str {
        match self {
            Self::Passed => "nothing failed",
            Self::InputFailed => "an input failed",
            Self::Broken => "did not run to its end",
        }
    }
}

impl Progress {
    pub(super) fn see(&mut self, line: &str) {
        self.has_failed |= line.contains("Test unit written to ");
        if let Some(seen) = Self::of(line) {
            *self = Self { has_failed: self.has_failed, ..seen };
        }
    }

    pub(super) fn outcome(&self, passed: bool) -> Outcome {
        match (passed, self.has_failed) {
            (true, _) => Outcome::Passed,
            (false, true) => Outcome::InputFailed,
            (false, false) => Outcome::Broken,
        }
    }

    fn of(line: &str) -> Option<Self> {
        let (runs, rest) = line.strip_prefix('#')?.split_once(|it: char| !it.is_ascii_digit())?;
        let mut words = rest.split_ascii_whitespace();
        let edges = words.by_ref().skip_while(|word| *word != "cov:").nth(1)?;
        let corpus = words.skip_while(|word| *word != "corp:").nth(1)?;
        let (kept, _bytes) = corpus.split_once('/')?;
        let (runs, edges, kept) = (runs.parse().ok()?, edges.parse().ok()?, kept.parse().ok()?);
        Some(Self { runs, edges, kept, has_failed: false })
    }

    pub(super) fn heading() -> String {
        format!("{:<12} {:>12} {:>8} {:>8}  result", "fuzzer", "runs", "edges", "corpus")
    }

    pub(super) fn row(&self, name: &str, outcome: Outcome) -> String {
        let Self { runs, edges, kept, .. } = self;
        format!("{name:<12} {runs:>12} {edges:>8} {kept:>8}  {}", outcome.words())
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Progress};

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
        assert_eq!(seen, Progress { runs: 4_194_304, edges: 5342, kept: 320, has_failed: false });
        let row = seen.row("wire", Outcome::Passed);
        assert_eq!(row, "wire              4194304     5342      320  nothing failed");
        assert_eq!(Progress::heading().find("  result"), row.find("  nothing"));
    }

    #[test]
    fn only_a_run_that_kept_an_input_blames_it() {
        let mut seen = Progress::default();
        assert_eq!(seen.outcome(false), Outcome::Broken);
        seen.see("artifact_prefix='/a/'; Test unit written to /a/crash-da39a3ee");
        seen.see("#4\tDONE cov: 11 ft: 12 corp: 1/1b");
        assert_eq!(seen.outcome(false), Outcome::InputFailed);
        assert_eq!(seen.outcome(true), Outcome::Passed);
    }
}
