//! Gives the engine what the last agent left in the rings, a portion at a time.

use anyhow::Result;

use crate::{
    agent::AgentError,
    engine::Call,
    model::fact::{Fact, Observation, Origin},
    session::Session,
    source::clock,
};

/// What is told only behind the last portion. What is told before it would make all records of the portions late.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldBehind {
    /// Nobody saw some of the time until now.
    pub(super) away: Option<Fact>,
    /// Nobody heard netlink since the last agent, and [`Fact::AgentBegan`] tells that.
    pub(super) unheard: bool,
}

impl ToldBehind {
    /// A file that is written before knows of an agent only since that wrote it. The next agent would find a file that seems whole,
    /// or tell a time that begins too late.
    fn allows_files(&self) -> bool {
        self.away.is_none() && !self.unheard
    }
}

/// Makes a call of each observation, and tells then that nobody saw some of the time until now, if so. `write` is called between
/// two portions, if that is allowed: an agent that is killed before it has taken all of them has taken a part for good.
pub(super) fn take(
    session: &mut Session,
    portions: impl IntoIterator<Item = impl IntoIterator<Item = Observation>>,
    told_behind: ToldBehind,
    mut write: impl FnMut(&mut Session) -> Result<(), AgentError>,
) -> Result<()> {
    let writes = told_behind.allows_files();
    for (portion, seen) in portions.into_iter().enumerate() {
        if portion > 0 && writes {
            write(session)?;
        }
        for seen in seen {
            session.call(Call::Observe(seen))?;
        }
    }
    if let Some(fact) = told_behind.away {
        session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ToldBehind, take};
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
    fn told(portions: u32, told_behind: ToldBehind) -> Vec<Vec<String>> {
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
        take(&mut session, left, told_behind, written).expect("it is not recorded");
        told.push(kinds(&mut session));
        told
    }

    #[test]
    fn a_gap_is_told_before_what_hides_it_is_written() {
        let away = Some(Fact::AgentAway { since: Timestamp(1) });
        let made = "netns.created";
        assert_eq!(told(3, ToldBehind { away, unheard: false }), [vec![made, made, made, "gap"]]);
        assert_eq!(told(2, ToldBehind::default()), [vec![], vec![made, made]]);
    }

    /// That of netlink is told behind them by the caller.
    #[test]
    fn nothing_is_written_while_a_time_without_netlink_is_to_be_told() {
        let made = "netns.created";
        assert_eq!(told(3, ToldBehind { away: None, unheard: true }), [[made, made, made]]);
    }
}
