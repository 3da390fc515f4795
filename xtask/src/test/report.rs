//! What the tiers came to: test cases counted from the runners' own closing lines, and failures of everything else.

use crate::{watch, workspace};
use anyhow::Result;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// All tiers so far.
pub(super) struct Report {
    tiers: Vec<Tier>,
    /// When all of it must be over.
    deadline: Option<Instant>,
}

/// One tier. A step that fails is counted and does not keep the next one from running.
pub(super) struct Tier {
    name: &'static str,
    begun: Instant,
    took: Duration,
    tally: Tally,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Report {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { tiers: Vec::new(), deadline: limit.map(|limit| Instant::now() + limit) }
    }

    pub(super) fn tier(&mut self, name: &'static str, steps: impl FnOnce(&mut Tier)) {
        println!("\n== {name}");
        let tally = Tally::default();
        let mut tier =
            Tier { name, begun: Instant::now(), took: Duration::ZERO, tally, deadline: self.deadline };
        steps(&mut tier);
        tier.took = tier.begun.elapsed();
        println!("== {name}: {} in {}", tier.tally, Seconds(tier.took));
        self.tiers.push(tier);
    }

    /// Prints every tier with its time and, at the very end, the whole; true when nothing failed.
    pub(super) fn close(&self) -> bool {
        println!();
        for tier in &self.tiers {
            println!("{:<24} {:>9}  {}", tier.name, Seconds(tier.took).to_string(), tier.tally);
        }
        let total = self.tiers.iter().fold(Tally::default(), |sum, tier| sum.plus(tier.tally));
        println!("{total}");
        total.failed == 0 && total.passed > 0
    }
}

impl Tier {
    /// A check that has no test cases: it fails or it does not.
    pub(super) fn check(&mut self, name: &str, command: &mut Command, limit: Duration) -> bool {
        self.step(name, command, limit, 0)
    }

    /// A run of test programs: it must print the closing lines of at least so many.
    pub(super) fn tests(
        &mut self,
        name: &str,
        command: &mut Command,
        limit: Duration,
        runners: usize,
    ) -> bool {
        self.step(name, command, limit, runners)
    }

    /// What is no command.
    pub(super) fn attempt<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("-- {name}");
        match work() {
            Ok(made) => Some(made),
            Err(error) => {
                self.fail(name, &format!("{error:#}"));
                None
            }
        }
    }

    /// True when nothing of it failed.
    fn step(&mut self, name: &str, command: &mut Command, limit: Duration, runners: usize) -> bool {
        println!("-- {name}");
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.map_or(limit, |left| left.min(limit));
        if limit.is_zero() {
            return self.fail(name, "no time was left for it");
        }
        let (mut seen, mut tally) = (0, Tally::default());
        let status = watch::run(command, limit, |line| {
            println!("{line}");
            if let Some(counted) = closing_line(line) {
                seen += 1;
                tally = tally.plus(counted);
            }
        });
        self.tally = self.tally.plus(tally);
        match status {
            Err(error) => self.fail(name, &format!("{error:#}")),
            Ok(_) if tally.failed > 0 => false,
            Ok(status) if !status.success() => {
                self.fail(name, &format!("{} ended with {status}", workspace::line(command)))
            }
            Ok(_) if seen < runners => self.fail(name, &format!("{seen} of {runners} test programs closed")),
            Ok(_) => true,
        }
    }

    /// Counts a failure that no test case stands for.
    pub(super) fn fail(&mut self, name: &str, why: &str) -> bool {
        println!("-- {name} failed: {why}");
        self.tally.failed += 1;
        false
    }
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        write!(f, "{}m {:02}s", seconds / 60, seconds % 60)
    }
}

/// Reads libtest's `test result: ok. 3 passed; 0 failed; 0 ignored; …`. An ignored test did not run, though it was
/// meant to: it counts as failed.
fn closing_line(line: &str) -> Option<Tally> {
    let counts = line.trim().strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut tally = Tally::default();
    for count in counts.split("; ") {
        let Some((number, what)) = count.split_once(' ') else { continue };
        match (number.parse::<u64>(), what) {
            (Ok(number), "passed") => tally.passed += number,
            (Ok(number), "failed" | "ignored") => tally.failed += number,
            _ => {}
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::{Report, Tally, closing_line};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn closing_lines_are_counted() {
        let count = |line| closing_line(line).map(|tally| (tally.passed, tally.failed));
        let ok =
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.20s";
        assert_eq!(count(ok), Some((12, 0)));
        assert_eq!(count("test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured"), Some((1, 6)));
        assert_eq!(count("test life::of_a_pod ... ok"), None);
    }

    #[test]
    fn nothing_begins_after_the_deadline() {
        let mut report = Report::new(Some(Duration::ZERO));
        report.tier("late", |tier| {
            assert!(!tier.check("check", &mut Command::new("true"), Duration::from_secs(60)));
        });
        assert_eq!(report.tiers[0].tally, Tally { passed: 0, failed: 1 });
    }

    #[test]
    fn whatever_does_not_pass_fails() {
        let mut report = Report::new(None);
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let limit = Duration::from_secs(60);
        report.tier("tier", |tier| {
            tier.check("good check", &mut shell("true"), limit);
            tier.check("bad check", &mut shell("exit 1"), limit);
            tier.tests("good", &mut shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"), limit, 1);
            tier.tests("silent", &mut shell("true"), limit, 1);
            // Counted by its own closing line, and not again for its status.
            tier.tests(
                "bad",
                &mut shell("echo 'test result: FAILED. 0 passed; 3 failed; 0 ignored'; exit 101"),
                limit,
                1,
            );
            tier.attempt("broken", || anyhow::Result::<()>::Err(anyhow::anyhow!("no")));
        });
        assert_eq!(report.tiers[0].tally, Tally { passed: 2, failed: 6 });
        assert!(!report.close());
    }
}
