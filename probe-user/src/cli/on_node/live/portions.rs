//! Gives the engine what the last agent left in the rings, a portion at a time.

use anyhow::Result;

use crate::{
    agent::AgentError,
    engine::Call,
    model::fact::{Fact, Observation, Origin},
    session::Session,
    source::clock,
};

/// Makes a call of each observation, and tells then that nobody saw some of the time until now, if so (`away`). `write` is called
/// between two portions: an agent that is killed before it has taken all of them has taken a part for good. With a time that
/// nobody saw nothing is written before that is told: the next agent would find a file that seems whole.
pub(super) fn take(
    session: &mut Session,
    portions: impl IntoIterator<Item = impl IntoIterator<Item = Observation>>,
    away: Option<Fact>,
    mut write: impl FnMut(&mut Session) -> Result<(), AgentError>,
) -> Result<()> {
    for (portion, seen) in portions.into_iter().enumerate() {
        if portion > 0 && away.is_none() {
            write(session)?;
        }
        for seen in seen {
            session.call(Call::Observe(seen))?;
        }
    }
    if let Some(fact) = away {
        session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::take;
    use crate::{
        agent::checkpoint::tests::header,
        model::{
            fact::{Fact, Observation, Origin, Task},
            id::NetnsKey,
            time::Timestamp,
        },
        session::Session,
        sink::{filter::Filter, jsonl::Jsonl},
        source::clock,
    };

    /// The kinds of the events that were told at each write and at the end, after so many portions. Each has a new namespace.
    fn told(portions: u32, away: Option<Fact>) -> Vec<Vec<String>> {
        let mut session = Session::new(&header("b"), Filter::default(), Box::new(Jsonl));
        let at = clock::now();
        let left = (1..=portions).map(|n| {
            let fact =
                Fact::NetnsCreated { netns: NetnsKey::new(n, 1), by: Task::default(), end_unseen: false };
            let passed = Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
            let made = Observation { at, origin: Origin::Kernel, fact };
            [Some(made), (n == portions).then_some(passed)].into_iter().flatten()
        });
        let mut told = Vec::new();
        let kinds = |session: &mut Session| {
            let text = String::from_utf8(session.output().clone()).expect("text");
            let kind = |line: &str| line.split("\"event\":\"").nth(1)?.split('"').next().map(str::to_owned);
            text.lines().filter_map(kind).collect()
        };
        let written = |session: &mut Session| {
            told.push(kinds(session));
            Ok(())
        };
        take(&mut session, left, away, written).expect("it is not recorded");
        told.push(kinds(&mut session));
        told
    }

    #[test]
    fn a_gap_is_told_before_what_hides_it_is_written() {
        let away = Some(Fact::AgentAway { since: Timestamp(1) });
        let made = "netns.created";
        assert_eq!(told(3, away), [vec![made, made, made, "gap"]]);
        assert_eq!(told(2, None), [vec![], vec![made, made]]);
    }
}
