//! A step of a tier: a command, its result, and several steps in parallel.
//!
//! cargo-nextest is not used: it runs the tests of one cargo build, and most steps here are something else: a
//! build, a lint, a VM, a test program as root. It also starts a process for each test, so that tests with a
//! shared fixture would set it up again.

use crate::watch::{self, Output};
use crate::workspace;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, iter, thread};

/// A command with a name, a time limit, and the number of test programs in it.
pub(super) struct Step {
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) limit: Duration,
    pub(super) runners: usize,
    /// Its programs run one test at a time, so that the time between two of their lines is that of a test.
    pub(super) is_serial: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Tally {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The result of a step.
pub(super) struct Came {
    /// The sum of the closing lines.
    pub(super) tally: Tally,
    /// What libtest printed about the cases that failed.
    pub(super) failures: Vec<String>,
    /// A failure that is not one of a test case.
    pub(super) trouble: Option<String>,
    pub(super) took: Duration,
    /// The time of each test, if one runs at a time.
    pub(super) tests: Vec<(String, Duration)>,
}

impl Came {
    pub(super) const fn is_good(&self) -> bool {
        self.trouble.is_none() && self.tally.failed == 0
    }
}

/// An event of a parallel step. Its output comes as a whole, at its end.
pub(super) enum Said {
    Begun(String),
    Ended { at: usize, name: String, lines: Vec<String>, came: Came },
}

impl Step {
    /// Lets other programs go first: `nice` is from 1 to 19.
    pub(super) fn at_priority(self, nice: u8) -> Self {
        self.below("nice", &["-n", &nice.to_string()])
    }

    /// Takes only processors that no other program wants.
    pub(super) fn when_idle(self) -> Self {
        self.below("chrt", &["--idle", "0"])
    }

    /// Runs the step's command as the argument of another one.
    fn below(self, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        Self { command, ..self }
    }

    /// Runs the step to its end, or to the deadline of all steps if that comes first.
    pub(super) fn run(
        &mut self,
        deadline: Option<Instant>,
        output: Output,
        mut show: impl FnMut(&str),
    ) -> Came {
        let begun = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.map_or(self.limit, |left| left.min(self.limit));
        let mut seen = 0;
        let mut tally = Tally::default();
        let mut failures = Failures::default();
        if limit.is_zero() {
            let trouble = Some("no time was left for it".to_owned());
            return Came {
                tally,
                failures: failures.lines,
                trouble,
                took: Duration::ZERO,
                tests: Vec::new(),
            };
        }
        let mut timer = TestTimer { last: begun, tests: Vec::new() };
        let status = watch::run(&mut self.command, limit, output, |line| {
            show(line);
            failures.read(line);
            timer.read(line, Instant::now());
            if let Some(counted) = closing_line(line) {
                seen += 1;
                tally = tally.plus(counted);
            }
        });
        let trouble = match status {
            Err(error) => Some(format!("{error:#}")),
            Ok(_) if tally.failed > 0 => None,
            Ok(status) if !status.success() => {
                Some(format!("{} ended with {status}", workspace::line(&self.command)))
            }
            Ok(_) if seen < self.runners => Some(format!("{seen} of {} test programs closed", self.runners)),
            Ok(_) => None,
        };
        let tests = if self.is_serial { timer.tests } else { Vec::new() };
        Came { tally, failures: failures.lines, trouble, took: begun.elapsed(), tests }
    }
}

/// Steps that run in their order, `lanes` at a time.
pub(super) struct Queue {
    pub(super) steps: Vec<Step>,
    pub(super) lanes: usize,
}

/// Runs all queues at the same time. A step's place in the report is that in all queues together.
pub(super) fn side_by_side(queues: Vec<Queue>, deadline: Option<Instant>, mut report: impl FnMut(Said)) {
    let mut places = 0..;
    let mut lanes = Vec::new();
    for queue in queues {
        let steps: Vec<_> = queue.steps.into_iter().zip(places.by_ref()).collect();
        let waiting = Arc::new(Mutex::new(steps.into_iter()));
        lanes.extend(iter::repeat_n(waiting, queue.lanes.max(1)));
    }
    let (said, hear) = mpsc::channel();
    thread::scope(|scope| {
        for waiting in lanes {
            let said = said.clone();
            scope.spawn(move || {
                while let Some((mut step, at)) = take_next(&waiting) {
                    let _gone = said.send(Said::Begun(step.name.clone()));
                    let mut lines = Vec::new();
                    let came = step.run(deadline, Output::Both, |line| lines.push(line.to_owned()));
                    let _gone = said.send(Said::Ended { at, name: step.name, lines, came });
                }
            });
        }
        drop(said);
        hear.into_iter().for_each(&mut report);
    });
}

/// Takes the next item. The lock is released before it is used.
fn take_next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// libtest's report about failed cases, from its heading to the closing line: the name of each case, and the
/// first lines that it printed. It is repeated at the end of the run, since a CI service may show little more
/// than that.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    is_within: bool,
    /// The lines that were read about the current case.
    case_lines: usize,
}

impl Failures {
    /// The kept lines of one case.
    const MAX_CASE_LINES: usize = 12;
    /// The kept bytes of one line.
    const MAX_LINE_BYTES: usize = 400;
    /// The kept lines of one step.
    const MAX_LINES: usize = 100;

    fn read(&mut self, line: &str) {
        let line = line.trim_end();
        match line {
            "failures:" => self.is_within = true,
            "successes:" => self.is_within = false,
            _ if closing_line(line).is_some() => self.is_within = false,
            _ if self.is_within => self.keep(line),
            _ => {}
        }
    }

    fn keep(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.case_lines = 0;
        }
        self.case_lines += 1;
        if self.case_lines > Self::MAX_CASE_LINES || self.lines.len() >= Self::MAX_LINES {
            return;
        }
        let end = line.floor_char_boundary(Self::MAX_LINE_BYTES);
        let (start, rest) = line.split_at(end);
        self.lines.push(if rest.is_empty() { start.to_owned() } else { format!("{start}…") });
    }
}

/// Times tests that run one at a time, by when their lines come.
struct TestTimer {
    /// When the last test ended, or the first one began.
    last: Instant,
    tests: Vec<(String, Duration)>,
}

impl TestTimer {
    fn read(&mut self, line: &str, now: Instant) {
        if let Some(name) = ended_test(line) {
            self.tests.push((name.to_owned(), now - self.last));
            self.last = now;
        } else if line.starts_with("running ") {
            self.last = now;
        }
    }
}

/// Returns the name in libtest's line `test pod::life ... ok`. What the test printed may come before the
/// result.
fn ended_test(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let last = result.split_whitespace().next_back();
    matches!(last, Some("ok" | "FAILED")).then_some(name)
}

/// Parses libtest's `test result: ok. 3 passed; 0 failed; 0 ignored; …`. An ignored test counts as failed,
/// because it should have run.
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
    use super::{Failures, Queue, Said, Step, TestTimer, closing_line, ended_test, side_by_side};
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_line_of_libtest_ends_a_test() {
        assert_eq!(ended_test("test pod::life ... ok"), Some("pod::life"));
        assert_eq!(ended_test("test pod::life ... 12 pods FAILED"), Some("pod::life"));
        assert_eq!(ended_test("test pod::life ... 12 pods"), None);
        assert_eq!(ended_test("test result: ok. 1 passed; 0 failed"), None);
    }

    /// The time of a test ends with its line.
    #[test]
    fn tests_that_run_one_at_a_time_are_timed() {
        let begun = Instant::now();
        let mut timer = TestTimer { last: begun, tests: Vec::new() };
        let lines = [
            "building",
            "running 2 tests",
            "test a ... ok",
            "test b ... FAILED",
            "running 1 test",
            "test c ... ok",
        ];
        for (second, line) in lines.into_iter().enumerate() {
            timer.read(line, begun + Duration::from_secs(u64::try_from(second * second).unwrap()));
        }
        let seconds: Vec<_> =
            timer.tests.iter().map(|(name, took)| (name.as_str(), took.as_secs())).collect();
        assert_eq!(seconds, [("a", 3), ("b", 5), ("c", 9)]);
    }

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
    fn what_is_said_of_failed_cases_is_kept() {
        let mut failures = Failures::default();
        let said = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nError: no\n\nfailures:\n    a\n\n\
                    test result: FAILED. 0 passed; 1 failed; 0 ignored\nafter\n";
        said.lines().for_each(|line| failures.read(line));
        assert_eq!(failures.lines, ["", "---- a stdout ----", "Error: no", "", "    a", ""]);
    }

    /// A case may print a whole stream.
    #[test]
    fn the_start_of_a_long_report_is_kept() {
        let mut failures = Failures::default();
        failures.read("failures:");
        for case in ["a", "b"] {
            failures.read(&format!("---- {case} stdout ----"));
            (0..1000).for_each(|_| failures.read(&"é".repeat(1000)));
        }
        assert_eq!(failures.lines.len(), 2 * Failures::MAX_CASE_LINES);
        assert!(failures.lines.contains(&"---- b stdout ----".to_owned()));
        assert!(failures.lines.iter().all(|line| line.len() <= Failures::MAX_LINE_BYTES + "…".len()));
    }

    fn shell(folder: &Path, script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder);
        Step {
            name: script.to_owned(),
            command,
            limit: Duration::from_secs(60),
            runners: 0,
            is_serial: false,
        }
    }

    /// Returns the place of each step, whether it was good, and its lines.
    fn ended(queues: Vec<Queue>) -> Vec<(usize, bool, String)> {
        let mut ended = Vec::new();
        side_by_side(queues, None, |said| {
            if let Said::Ended { at, lines, came, .. } = said {
                ended.push((at, came.is_good(), lines.join(" ")));
            }
        });
        ended.sort();
        ended
    }

    /// The first waits for the second, which ends only if both run at the same time.
    #[test]
    fn two_lanes_run_two_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = shell(folder.path(), "mkfifo pipe; : > open; echo out; echo err >&2; cat pipe");
        let second = shell(folder.path(), "until [ -e open ]; do :; done; echo through > pipe");
        let both = ended(vec![Queue { steps: vec![first, second], lanes: 2 }]);
        assert_eq!(both, [(0, true, "out err through".to_owned()), (1, true, String::new())]);
    }

    /// The first of each queue waits for the other's.
    #[test]
    fn a_queue_runs_in_its_order_beside_another() {
        let folder = tempfile::tempdir().unwrap();
        let step = |script| shell(folder.path(), script);
        let one = vec![
            step("mkfifo pipe; : > open; echo one; cat pipe; : > done"),
            step("test -e done && echo two"),
        ];
        let other = step("until [ -e open ]; do :; done; echo through > pipe; nice").at_priority(19);
        let idle = step("chrt --pid $$ | sed -n 's/.*policy: //p'").when_idle();
        let queues = vec![Queue { steps: one, lanes: 1 }, Queue { steps: vec![other, idle], lanes: 1 }];
        let expected = [(0, "one through"), (1, "two"), (2, "19"), (3, "SCHED_IDLE")];
        assert_eq!(ended(queues), expected.map(|(at, said)| (at, true, said.to_owned())));
    }
}
