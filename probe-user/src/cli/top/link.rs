//! The connection to the agent: when it answered last, and since when it does not answer.

use std::time::{Duration, Instant};

use super::model::Data;

/// The latest answer, and what has become of the agent since.
pub(super) struct Link {
    pub(super) data: Option<Data>,
    /// When the agent last answered, or failed to.
    heard_at: Instant,
    /// Since when it does not answer, and why.
    away: Option<(Instant, String)>,
    /// How long an answer takes at most if all is well.
    patience: Duration,
}

/// What the header says about the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Well,
    /// It has a request, and has not answered yet.
    Silent(Duration),
    Away {
        time: Duration,
        why: String,
    },
}

/// How long an answer may take before the header says so.
const SLOW: Duration = Duration::from_secs(2);

impl Link {
    pub(super) fn new(data: Option<Data>, interval: Duration, now: Instant) -> Self {
        Self { data, heard_at: now, away: None, patience: interval + SLOW }
    }

    /// Takes an answer. The data of before stays while there is no newer.
    pub(super) fn hear(&mut self, answer: Result<Box<Data>, String>, now: Instant) {
        self.heard_at = now;
        match answer {
            Ok(data) => {
                self.data = Some(*data);
                self.away = None;
            }
            Err(why) => {
                let since = self.away.take().map_or(now, |(since, _)| since);
                self.away = Some((since, why));
            }
        }
    }

    /// The agent is asked again from now on.
    pub(super) fn resume(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Returns how the connection is. While nobody asks, silence means nothing.
    pub(super) fn connection(&self, is_paused: bool, now: Instant) -> Connection {
        let silent = now.saturating_duration_since(self.heard_at);
        match &self.away {
            Some((since, why)) => {
                Connection::Away { time: now.saturating_duration_since(*since), why: why.clone() }
            }
            None if silent > self.patience && !is_paused => Connection::Silent(silent),
            None => Connection::Well,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Connection, Link};

    #[test]
    fn an_agent_that_does_not_answer_is_told_since_when() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut link = Link::new(None, Duration::from_secs(1), begun);
        assert_eq!(link.connection(false, at(3)), Connection::Well);
        assert_eq!(link.connection(false, at(4)), Connection::Silent(Duration::from_secs(4)));
        assert_eq!(link.connection(true, at(4)), Connection::Well);
        link.hear(Err("gone".to_owned()), at(5));
        link.hear(Err("still gone".to_owned()), at(7));
        let away = Connection::Away { time: Duration::from_secs(4), why: "still gone".to_owned() };
        assert_eq!(link.connection(false, at(9)), away);
    }
}
