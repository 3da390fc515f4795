//! Asks the agent, again and again, in a thread of its own: keys never wait for it.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;

use super::{
    Message,
    model::{Addresses, Data, Doctor, PodList, State},
};
use crate::cli::{
    client::{AgentArgs, DOCTOR, OK, OR_NOT, PODS, POOLS, STATE, VERDICT},
    snapshot::AgentSnapshot,
    verdict,
};

/// The agent is not asked more often than this, however long a key is held.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// Large documents are not read again sooner than this, however busy the node is.
const KEPT: Duration = Duration::from_secs(2);
/// What changes without an event, such as the evidence of a finding, is read again after this time.
const REREAD: Duration = Duration::from_secs(5);

/// What the view wants of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Ask at once.
    Now,
    /// Ask no more until the next order.
    Pause,
}

pub(super) struct Poller {
    agent: AgentArgs,
    last: Option<Last>,
}

/// The previous answer.
struct Last {
    doctor: Doctor,
    state: Arc<State>,
}

impl Poller {
    pub(super) fn new(agent: AgentArgs) -> Self {
        Self { agent, last: None }
    }

    pub(super) fn ask(&mut self) -> anyhow::Result<Data> {
        let doctor: Doctor = self.document(DOCTOR, &OK)?;
        let verdict: verdict::Answer = self.document(VERDICT, &OR_NOT)?;
        let addresses: Addresses = self.document(POOLS, &OK)?;
        let state = match self.last.as_ref().filter(|last| last.is_fresh(&doctor)) {
            Some(last) => Arc::clone(&last.state),
            None => Arc::new(self.state()?),
        };
        let rates = self.last.as_ref().and_then(|last| doctor.rates(&last.doctor));
        self.last = Some(Last { doctor: doctor.clone(), state: Arc::clone(&state) });
        Ok(Data { doctor, verdict, addresses, state, rates })
    }

    fn state(&self) -> anyhow::Result<State> {
        let PodList { pods } = self.document(PODS, &OK)?;
        let snapshot = AgentSnapshot::answered(&self.agent, &self.read(STATE, &OK)?)?;
        Ok(State { snapshot, pods })
    }

    fn document<T: DeserializeOwned>(&self, path: &str, expected: &[&str]) -> anyhow::Result<T> {
        let bytes = self.read(path, expected)?;
        serde_json::from_slice(&bytes).with_context(|| self.agent.unreadable_at(path))
    }

    fn read(&self, path: &str, expected: &[&str]) -> anyhow::Result<Vec<u8>> {
        self.agent.ask_patiently(path, expected)?.ok_or_else(|| anyhow!("{}", self.agent.nobody()))
    }

    /// Asks until nobody listens any more. The first request is an interval from now.
    pub(super) fn run(mut self, interval: Duration, sender: &Sender<Message>, orders: &Receiver<Order>) {
        let mut asked = Instant::now();
        let mut is_paused = false;
        loop {
            let next = if is_paused {
                orders.recv().map_err(|_gone| RecvTimeoutError::Disconnected)
            } else {
                orders.recv_timeout(interval)
            };
            let order = match next {
                Ok(first) => {
                    thread::sleep(MIN_INTERVAL.saturating_sub(asked.elapsed()));
                    // If several orders have come meanwhile, as from a held key, the last one counts.
                    orders.try_iter().last().unwrap_or(first)
                }
                Err(RecvTimeoutError::Timeout) => Order::Now,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            is_paused = order == Order::Pause;
            if is_paused {
                continue;
            }
            asked = Instant::now();
            let answer = self.ask().map_err(|error| format!("{error:#}"));
            // Nothing is known about what happened meanwhile.
            if answer.is_err() {
                self.last = None;
            }
            if sender.send(Message::Answer(answer.map(Box::new))).is_err() {
                return;
            }
        }
    }
}

impl Last {
    /// Whether it was read a moment ago, or nothing has happened since.
    fn is_fresh(&self, now: &Doctor) -> bool {
        let agent = &self.doctor.agent;
        let kept = if agent.seq == now.agent.seq { REREAD } else { KEPT };
        agent.instance == now.agent.instance && now.boot_ns.since(self.state.snapshot.now) < kept
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::Last;
    use crate::cli::top::tests::data;

    #[test]
    fn the_state_is_read_again_when_something_has_happened_but_not_each_time() {
        let data = data(5);
        let last = Last { doctor: data.doctor.clone(), state: Arc::clone(&data.state) };
        let is_fresh = |events: u64, milliseconds: u64| {
            let mut now = data.doctor.clone();
            now.agent.seq += events;
            now.boot_ns = now.boot_ns + Duration::from_millis(milliseconds);
            last.is_fresh(&now)
        };
        assert!(is_fresh(0, 4_999) && !is_fresh(0, 5_000), "evidence changes without an event");
        assert!(is_fresh(1, 1_999) && !is_fresh(1, 2_000), "on a busy node something always happens");
        let mut other = data.doctor.clone();
        other.agent.instance = "other".to_owned();
        assert!(!last.is_fresh(&other), "another agent has another state");
    }
}
