//! Runs a story and compares its events.

use super::{Story, line, ms};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{Output, Question},
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    },
};

impl Story {
    /// An engine to which nothing of the story was fed yet.
    fn engine(&self, settings: Settings) -> Engine {
        let mut engine = Engine::new(settings);
        self.restored.iter().cloned().for_each(|entry| engine.restore(entry));
        engine
    }

    /// Compares the events about findings and the requested listings. Blind spots are left out, because they
    /// are not verdicts on pods.
    #[track_caller]
    pub(in crate::engine::tests) fn check_findings(&self, expected: &str) {
        let of_verdict = |line: &String| {
            line.contains(" finding.") && !line.contains(" blind_spot/") || line == "? relist"
        };
        check_lines(&self.run().into_iter().filter(of_verdict).collect::<Vec<_>>().join("\n"), expected);
    }

    /// Runs the whole story, moves the watermark to the end, and returns the stream.
    pub(in crate::engine::tests) fn run(&self) -> Vec<String> {
        let mut engine = self.engine(Settings::default());
        let mut lines = feed(&mut engine, &self.facts, ms(self.lag));
        lines.extend(settle(&mut engine, ms(self.now)));
        lines
    }

    /// Runs the story in time, and on to `until`. Returns the events about findings, and the engine at that
    /// time.
    pub(in crate::engine::tests) fn judge(&self, until: u64) -> (String, Engine) {
        self.judge_by(Settings::default(), until)
    }

    pub(in crate::engine::tests) fn judge_by(&self, settings: Settings, until: u64) -> (String, Engine) {
        let mut engine = self.engine(settings);
        let mut lines = Vec::new();
        for seen in &self.facts {
            // The agent reports a resume before it reports the time.
            if !matches!(seen.fact, Fact::Resumed { .. }) {
                pass(&mut engine, Timestamp(seen.at.0 - 1));
            }
            engine.observe(seen.clone());
            lines.extend(take(&mut engine));
        }
        lines.extend(settle(&mut engine, ms(self.now)));
        while let Some(due) = engine.deadline().filter(|due| *due <= ms(until)) {
            engine.advance(due);
            lines.extend(take(&mut engine));
        }
        lines.retain(|line| line.split(' ').nth(1).is_some_and(|what| what.starts_with("finding.")));
        (lines.join("\n"), engine)
    }

    /// Compares the stream and the questions, without questions about plugin versions, which have tests of
    /// their own.
    #[track_caller]
    pub(in crate::engine::tests) fn check(&self, expected: &str) {
        let lines: Vec<String> =
            self.run().into_iter().filter(|line| !line.starts_with("? program")).collect();
        check_lines(&lines.join("\n"), expected);
    }
}

#[track_caller]
pub(in crate::engine::tests) fn check_lines(got: &str, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(got.lines().collect::<Vec<_>>(), expected, "\n--- the stream:\n{got}\n---");
}

/// Feeds facts to an engine and takes its outputs. Unordered facts are seen at their own time, with the
/// watermark just before them.
pub(in crate::engine::tests) fn feed(
    engine: &mut Engine,
    facts: &[Observation],
    lag: Timestamp,
) -> Vec<String> {
    let mut lines = Vec::new();
    for seen in facts {
        if !matches!(seen.origin, Origin::Kernel | Origin::Delegated) {
            pass(engine, Timestamp(seen.at.0.saturating_sub(lag.0 + 1)));
        }
        engine.observe(seen.clone());
        lines.extend(take(engine));
    }
    lines
}

pub(in crate::engine::tests) fn pass(engine: &mut Engine, at: Timestamp) {
    engine.observe(Observation { at, origin: Origin::Kernel, fact: Fact::Watermark });
}

/// The watermark passes everything, and every hold is over.
pub(in crate::engine::tests) fn settle(engine: &mut Engine, at: Timestamp) -> Vec<String> {
    pass(engine, at);
    let mut lines = take(engine);
    engine.advance(at + engine.settings().hold);
    lines.extend(take(engine));
    lines
}

pub(in crate::engine::tests) fn take(engine: &mut Engine) -> Vec<String> {
    // These questions are left out, because they come after every CNI operation and every step of a start.
    let is_told = |output: &Output| {
        !matches!(
            output,
            Output::Question(
                Question::Records
                    | Question::Pressure { .. }
                    | Question::Expected { .. }
                    | Question::ImageWork { .. }
                    | Question::HeldRequests { .. }
            )
        )
    };
    std::iter::from_fn(|| engine.poll()).filter(is_told).map(|output| line::line(&output)).collect()
}
