//! The results of the tiers: test cases from the closing lines of the test programs, and failures of all
//! other steps.

use super::step::{self, Came, Queue, Said, Step, Tally};
use crate::watch::Output;
use anyhow::Result;
use std::cmp::Reverse;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fmt, panic, thread};

/// The results so far.
pub(super) struct Report {
    tiers: Vec<Tier>,
    /// When all tiers must have ended.
    deadline: Option<Instant>,
}

/// A tier. A failed step is counted and does not stop the next one.
pub(super) struct Tier {
    name: &'static str,
    begun: Instant,
    took: Duration,
    /// The steps that took a minute or more, for whoever has to make a run shorter.
    long: Vec<String>,
    /// The tests that run one at a time, with their step and their time.
    tests: Vec<TimedTest>,
    tally: Tally,
    /// What was printed about each failure, to be repeated at the end.
    failures: Vec<String>,
    deadline: Option<Instant>,
}

struct TimedTest {
    name: String,
    step: String,
    took: Duration,
}

/// The slowest tests that are shown.
const MAX_SLOWEST: usize = 20;

impl Report {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { tiers: Vec::new(), deadline: limit.map(|limit| Instant::now() + limit) }
    }

    pub(super) fn tier(&mut self, name: &'static str, steps: impl FnOnce(&mut Tier)) {
        println!("\n== {name}");
        let mut tier = Tier {
            name,
            begun: Instant::now(),
            took: Duration::ZERO,
            long: Vec::new(),
            tests: Vec::new(),
            tally: Tally::default(),
            failures: Vec::new(),
            deadline: self.deadline,
        };
        steps(&mut tier);
        tier.took = tier.begun.elapsed();
        println!("== {name}: {} in {}", tier.tally, Seconds(tier.took));
        self.tiers.push(tier);
    }

    /// Repeats what was printed about failures, then prints every tier with its time and its long steps, and
    /// the total as the last line. Returns whether nothing failed and something passed.
    pub(super) fn close(&self) -> bool {
        for line in self.tiers.iter().flat_map(|tier| &tier.failures) {
            println!("{line}");
        }
        self.show_slowest();
        println!();
        for tier in &self.tiers {
            tier.long.iter().for_each(|step| println!("  {step}"));
            println!("{:<24} {:>9}  {}", tier.name, Seconds(tier.took).to_string(), tier.tally);
        }
        let total = self.tiers.iter().fold(Tally::default(), |sum, tier| sum.plus(tier.tally));
        println!("{total}");
        total.failed == 0 && total.passed > 0
    }
}

impl Report {
    /// Prints the tests that take longest, for whoever has to make a run shorter.
    fn show_slowest(&self) {
        let mut tests: Vec<&TimedTest> = self.tiers.iter().flat_map(|tier| &tier.tests).collect();
        tests.sort_by_key(|test| Reverse(test.took));
        tests.truncate(MAX_SLOWEST);
        if !tests.is_empty() {
            println!("\nslowest tests of those that run one at a time:");
        }
        for test in tests {
            println!("{:>8}  {} ({})", Seconds(test.took).to_string(), test.name, test.step);
        }
    }
}

impl Tier {
    /// Runs a check that has no test cases: it fails or it does not.
    pub(super) fn check(&mut self, name: &str, command: Command, limit: Duration) -> bool {
        self.step(name, command, limit, 0)
    }

    /// Runs test programs. At least `runners` of them must print their closing line.
    pub(super) fn tests(&mut self, name: &str, command: Command, limit: Duration, runners: usize) -> bool {
        self.step(name, command, limit, runners)
    }

    /// Does work that is not a command. Returns its result, or counts its failure.
    pub(super) fn attempt<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("-- {name}");
        let begun = Instant::now();
        let done = match work() {
            Ok(made) => Some(made),
            Err(error) => {
                self.fail(name, &format!("{error:#}"));
                None
            }
        };
        self.took(name, begun.elapsed());
        done
    }

    fn step(&mut self, name: &str, command: Command, limit: Duration, runners: usize) -> bool {
        self.run(Step { name: name.to_owned(), command, limit, runners, is_serial: false })
    }

    /// Runs a step and shows its lines as they come. Returns whether nothing in it failed.
    pub(super) fn run(&mut self, mut step: Step) -> bool {
        println!("-- {}", step.name);
        let came = step.run(self.deadline, Output::Standard, |line| println!("{line}"));
        self.took(&step.name, came.took);
        self.count(&step.name, &came)
    }

    /// Runs all steps, `lanes` at a time. Returns for each step, in their order, whether nothing in it
    /// failed.
    pub(super) fn lanes(&mut self, steps: Vec<Step>, lanes: usize) -> Vec<bool> {
        self.queues(vec![Queue { steps, lanes }])
    }

    /// Runs all queues at the same time. Returns for each step whether nothing in it failed.
    pub(super) fn queues(&mut self, queues: Vec<Queue>) -> Vec<bool> {
        let mut good = vec![false; queues.iter().map(|queue| queue.steps.len()).sum()];
        step::side_by_side(queues, self.deadline, |said| match said {
            Said::Begun(name) => println!("-- {name}: begun"),
            Said::Ended { at, name, lines, came } => {
                let is_good = self.ended(&name, &lines, &came);
                if let Some(good) = good.get_mut(at) {
                    *good = is_good;
                }
            }
        });
        good
    }

    /// Runs the steps of a queue at the same time as `work`, and shows and counts them after both.
    pub(super) fn beside(&mut self, queue: Queue, work: impl FnOnce(&mut Self)) {
        let deadline = self.deadline;
        thread::scope(|scope| {
            let running = scope.spawn(move || {
                let mut all = Vec::new();
                step::side_by_side(vec![queue], deadline, |said| all.push(said));
                all
            });
            work(self);
            match running.join() {
                Ok(all) => {
                    for said in all {
                        if let Said::Ended { name, lines, came, .. } = said {
                            self.ended(&name, &lines, &came);
                        }
                    }
                }
                Err(panic) => panic::resume_unwind(panic),
            }
        });
    }

    /// Shows and counts a step that ran beside others. Returns whether nothing in it failed.
    fn ended(&mut self, name: &str, lines: &[String], came: &Came) -> bool {
        println!("-- {name}");
        for line in lines {
            println!("{line}");
        }
        self.took(name, came.took);
        self.count(name, came)
    }

    fn took(&mut self, name: &str, took: Duration) {
        println!("-- {name}: {}", Seconds(took));
        if took >= Duration::from_secs(60) {
            self.long.push(format!("{:>8}  {name}", Seconds(took).to_string()));
        }
    }

    fn count(&mut self, name: &str, came: &Came) -> bool {
        self.tally = self.tally.plus(came.tally);
        for (test, took) in &came.tests {
            self.tests.push(TimedTest { name: test.clone(), step: name.to_owned(), took: *took });
        }
        if came.tally.failed > 0 {
            self.failures.push(format!("\n-- failed in {name}"));
            self.failures.extend_from_slice(&came.failures);
        }
        if let Some(why) = &came.trouble {
            self.fail(name, why);
        }
        came.is_good()
    }

    /// Counts a failure that is not one of a test case.
    pub(super) fn fail(&mut self, name: &str, why: &str) -> bool {
        let line = format!("-- {name} failed: {why}");
        println!("{line}");
        self.failures.push(line);
        self.tally.failed += 1;
        false
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        write!(f, "{}m {:02}s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, Tally};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn nothing_begins_after_the_deadline() {
        let mut report = Report::new(Some(Duration::ZERO));
        report.tier("late", |tier| {
            assert!(!tier.check("check", Command::new("true"), Duration::from_secs(60)));
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
            tier.check("good check", shell("true"), limit);
            tier.check("bad check", shell("exit 1"), limit);
            tier.tests("good", shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"), limit, 1);
            tier.tests("silent", shell("true"), limit, 1);
            // It is counted by its own closing line, and not again for its status.
            tier.tests(
                "bad",
                shell("echo 'test result: FAILED. 0 passed; 3 failed; 0 ignored'; exit 101"),
                limit,
                1,
            );
            tier.attempt("broken", || anyhow::Result::<()>::Err(anyhow::anyhow!("no")));
        });
        assert_eq!(report.tiers[0].tally, Tally { passed: 2, failed: 6 });
        // Each is repeated at the end.
        for name in ["bad check", "silent", "bad", "broken"] {
            let reports = |line: &String| {
                line.contains(&format!("-- {name} failed:")) || line.ends_with(&format!("failed in {name}"))
            };
            assert!(report.tiers[0].failures.iter().any(reports), "{name}");
        }
        assert!(!report.close());
    }
}
