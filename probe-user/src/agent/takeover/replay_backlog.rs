//! Passes to the engine what the last agent left in the rings, a portion at a time.

use anyhow::Result;

use super::checkpoint::resume::Resumed;
use crate::{
    agent::AgentError,
    engine::Call,
    model::{
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    },
    session::Session,
    source::{
        live::{attach::Earlier, ring::RingReader},
        node::clock,
    },
};

/// Reports to the engine what the hooks have seen until now. Calls `write` between two portions, if that is
/// allowed. Returns the time after that.
pub(crate) fn replay(
    session: &mut Session,
    drain: &mut RingReader,
    resumed: Resumed,
    earlier: &mut [Earlier],
    hears_netlink: bool,
    write: impl FnMut(&mut Session) -> Result<(), AgentError>,
) -> Result<Timestamp> {
    let Resumed { last, lost_since } = resumed;
    if last.is_some() || drain.read_before(earlier).is_some() {
        let fact = Fact::AgentArrived;
        session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
    }
    let before = if last.is_some() { session.engine().rings_read() } else { None };
    let is_whole = before.is_some_and(|before| drain.goes_on_from(&before, earlier));
    // Hooks may be left from before the last agent, which had others and reported itself what it saw.
    let follows = before.is_none_or(|before| drain.follows(&before, earlier));
    let reported_until = if follows { None } else { last };
    if last.is_some() && !drain.is_pinned() {
        // No agent can go on from here in the rings that the last agent read.
        let fact = Fact::RingsRead(drain.begins());
        session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
    }
    let is_partial = drain.is_partly_left(earlier);
    let hooks_since = drain.sees_since(before, earlier);
    let mut portions = drain.begin(before, earlier);
    if let Some(until) = reported_until {
        for batch in &mut portions {
            batch.retain(|seen| seen.origin != Origin::Kernel || seen.at > until);
        }
    }
    let unseen = Unseen {
        // The loss of a state was reported, and with it that time.
        away_since: if is_whole || lost_since.is_some() { None } else { last },
        hooks_since,
        is_partial,
        unheard: last.is_some() && hears_netlink,
    };
    let unseen_until = take(session, portions, unseen, write)?;
    let at = clock::now();
    if let Some(since) = last {
        let unheard_since = if is_whole { Some(since) } else { unseen_until };
        let fact = Fact::AgentBegan { unheard_since };
        session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?;
    }
    Ok(at)
}

/// What nobody saw between the last agent and this one.
#[derive(Clone, Copy, Debug, Default)]
struct Unseen {
    /// Nobody saw some of the time from then on. That is reported before the portions: time passes with them,
    /// and what was open by then may have ended.
    away_since: Option<Timestamp>,
    /// The time from which on the hooks saw everything whose records are in the portions. While they were
    /// being attached, some saw what others did not.
    hooks_since: Timestamp,
    /// Some of the hooks saw nothing until now, and the portions are from the others.
    is_partial: bool,
    /// Nobody heard netlink for some of the time, and [`Fact::AgentBegan`] reports that after the portions.
    unheard: bool,
}

impl Unseen {
    /// Whether files may be written before everything is reported. Such a file knows of an agent only from
    /// the time at which it was written: the next agent would find a file that seems whole, or report a time
    /// that begins too late.
    fn allows_files(self) -> bool {
        !self.unheard && (self.away_since.is_none() || !self.is_partial)
    }
}

/// Makes a call of each observation. Reports that nobody saw some of the time at the time of the first record
/// from which on the hooks have everything, so that only records from before that are late. Calls `write`
/// between two portions, if that is allowed: an agent that is killed before it has taken all of them has
/// taken a part for good. Returns the time up to which it reported that nobody saw what happened, if hooks
/// saw what happened from then on.
fn take(
    session: &mut Session,
    portions: Vec<Vec<Observation>>,
    unseen: Unseen,
    mut write: impl FnMut(&mut Session) -> Result<(), AgentError>,
) -> Result<Option<Timestamp>> {
    let records = portions.iter().flatten().filter(|seen| seen.origin != Origin::Agent);
    let first = records.map(|seen| seen.at).min();
    let until = unseen.away_since.map(|since| match first {
        Some(first) => first.max(since).max(unseen.hooks_since),
        None => clock::now(),
    });
    if let (Some(since), Some(until)) = (unseen.away_since, until) {
        // What still waits for its order happened before the gap.
        let at = first.map_or(since, |first| first.min(since));
        session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact: Fact::Watermark }))?;
        away(session, since, until)?;
    }
    for (portion, seen) in portions.into_iter().enumerate() {
        if portion > 0 && unseen.allows_files() {
            write(session)?;
        }
        for seen in seen {
            session.call(Call::Observe(seen))?;
        }
    }
    if let (Some(since), Some(first), true) = (unseen.away_since, first, unseen.is_partial) {
        away(session, first.max(since), clock::now())?;
    }
    Ok(if unseen.is_partial { None } else { until })
}

/// Reports that nobody saw what happened from `since` until `at`.
fn away(session: &mut Session, since: Timestamp, at: Timestamp) -> Result<()> {
    let fact = Fact::AgentAway { since };
    Ok(session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Unseen, take};
    use crate::{
        agent::takeover::checkpoint::tests::header,
        engine::Call,
        model::{
            fact::{CniCalled, CniVariables, Fact, Observation, Origin, Task},
            id::{NetnsKey, TaskKey},
        },
        session::Session,
        sink::{render::jsonl::Jsonl, select::filter::Filter},
        source::node::clock,
    };

    /// Returns the kinds of the events that were reported at each write and at the end, after this many
    /// portions. Each portion has a new namespace.
    fn told(portions: u32, unseen: Unseen) -> Vec<Vec<String>> {
        let mut session = Session::new(&header("b"), Filter::default(), Box::new(Jsonl));
        let at = clock::now();
        let left = (1..=portions).map(|n| {
            let fact =
                Fact::NetnsCreated { netns: NetnsKey::new(n, 1), by: Task::default(), end_unseen: false };
            let passed = Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
            let made = Observation { at, origin: Origin::Kernel, fact };
            [Some(made), (n == portions).then_some(passed)].into_iter().flatten().collect()
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
        take(&mut session, left.collect(), unseen, written).expect("it is not recorded");
        told.push(kinds(&mut session));
        told
    }

    #[test]
    fn a_gap_is_told_before_what_it_hides_is_written() {
        let away_since = Some(clock::now());
        let made = "netns.created";
        assert_eq!(
            told(2, Unseen { away_since, ..Unseen::default() }),
            [vec!["gap"], vec!["gap", made, made]]
        );
        assert_eq!(told(0, Unseen { away_since, ..Unseen::default() }), [["gap"]]);
        assert_eq!(told(2, Unseen::default()), [vec![], vec![made, made]]);
    }

    /// What the other hooks saw meanwhile is reported in its order, and nothing is written before everything
    /// is reported.
    #[test]
    fn a_time_that_some_hooks_did_not_see_is_a_gap_behind_what_the_others_saw() {
        let unseen = Unseen { away_since: Some(clock::now()), is_partial: true, ..Unseen::default() };
        assert_eq!(told(2, unseen), [["gap", "netns.created", "netns.created", "gap"]]);
        assert_eq!(told(0, unseen), [["gap"]]);
    }

    /// The caller reports the netlink gap afterwards.
    #[test]
    fn nothing_is_written_while_a_time_without_netlink_is_to_be_told() {
        let made = "netns.created";
        assert_eq!(told(3, Unseen { unheard: true, ..Unseen::default() }), [[made, made, made]]);
    }

    /// A hook that was attached early saw something before the others did.
    #[test]
    fn a_gap_ends_when_all_hooks_are_there() {
        let mut session = Session::new(&header("b"), Filter::default(), Box::new(Jsonl));
        let at = |seconds: u64| clock::now().saturating_sub(Duration::from_secs(100 - seconds));
        let (since, early, attached, after) = (at(10), at(20), at(21), at(30));
        let made = |at, inode| {
            let fact =
                Fact::NetnsCreated { netns: NetnsKey::new(inode, 1), by: Task::default(), end_unseen: false };
            Observation { at, origin: Origin::Kernel, fact }
        };
        let passed = Observation { at: after, origin: Origin::Agent, fact: Fact::Watermark };
        let unseen = Unseen { away_since: Some(since), hooks_since: attached, ..Unseen::default() };
        let left = vec![vec![made(early, 1), made(after, 2), passed]];
        let until = take(&mut session, left, unseen, |_| Ok(())).expect("it is not recorded");
        assert_eq!(until, Some(attached));
        let text = String::from_utf8(session.output().clone()).expect("text");
        let ended = format!("\"boot_ns\":\"{}\",\"event\":\"gap\"", attached.0);
        assert!(text.contains(&ended), "{text}");
        let late: Vec<&str> = text.lines().filter(|line| line.contains("\"late\":true")).collect();
        assert!(matches!(late[..], [line] if line.contains("\"inode\":1,")), "{text}");
    }

    /// The ADD may have ended in the time that nobody saw. What hooks saw after that is reported as usual.
    #[test]
    fn a_call_that_was_open_when_a_gap_began_is_not_judged_behind_it() {
        let mut session = Session::new(&header("b"), Filter::default(), Box::new(Jsonl));
        let now = clock::now();
        let before = |seconds| now.saturating_sub(Duration::from_secs(seconds));
        let task = Task { key: TaskKey::new(7, 1), ..Task::default() };
        let variables = CniVariables {
            command: "ADD".to_owned(),
            container_id: Some("a".repeat(64)),
            args: Some("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0".to_owned()),
            ..CniVariables::default()
        };
        let filename = "/opt/cni/bin/bridge".to_owned();
        let called = Fact::CniCalled(CniCalled {
            task,
            filename,
            caller: None,
            host: true,
            variables,
            env_truncated: false,
        });
        let passed = |at| Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
        let kernel = |at, fact| Observation { at, origin: Origin::Kernel, fact };
        let since = before(60);
        for seen in [kernel(since, called), passed(since)] {
            session.call(Call::Observe(seen)).expect("it is not recorded");
        }
        let until = before(30);
        let netns = NetnsKey::new(1, 1);
        let made = Fact::NetnsCreated { netns, by: Task::default(), end_unseen: false };
        let left = vec![vec![kernel(until, made)], vec![passed(before(1))]];
        let unseen = Unseen { away_since: Some(since), ..Unseen::default() };
        take(&mut session, left, unseen, |_| Ok(())).expect("it is not recorded");
        let text = String::from_utf8(session.output().clone()).expect("text");
        let gap = format!("\"boot_ns\":\"{}\"", until.0);
        let lines: Vec<&str> = text.lines().collect();
        let place = lines.iter().position(|line| line.contains("\"event\":\"gap\"")).expect("a gap");
        assert!(lines[place].contains(&gap), "{text}");
        let next = lines[place + 1];
        assert!(next.contains("netns.created"), "{text}");
        assert!(!text.contains("cni_slow") && !text.contains("\"late\""), "{text}");
    }
}
