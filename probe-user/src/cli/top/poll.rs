//! Asks the agent, again and again, in a thread of its own: keys never wait for it.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;

use super::{
    Message,
    model::{Addresses, Data, Doctor, PodList, State},
};
use crate::cli::{
    client::{AgentArgs, OK, OR_NOT},
    snapshot::AgentSnapshot,
    verdict,
};

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

/// The answer before.
struct Last {
    doctor: Doctor,
    state: Arc<State>,
}

impl Poller {
    pub(super) fn new(agent: AgentArgs) -> Self {
        Self { agent, last: None }
    }

    pub(super) fn ask(&mut self) -> anyhow::Result<Data> {
        let doctor: Doctor = self.document("/v1/doctor", &OK)?;
        let verdict: verdict::Answer = self.document("/v1/verdict", &OR_NOT)?;
        let addresses: Addresses = self.document("/v1/pools", &OK)?;
        let state = match self.last.as_ref().filter(|last| last.is_fresh(&doctor)) {
            Some(last) => Arc::clone(&last.state),
            None => Arc::new(self.state()?),
        };
        let rates = self.last.as_ref().and_then(|last| doctor.rates(&last.doctor));
        self.last = Some(Last { doctor: doctor.clone(), state: Arc::clone(&state) });
        Ok(Data { doctor, verdict, addresses, state, rates })
    }

    fn state(&self) -> anyhow::Result<State> {
        let PodList { pods } = self.document("/v1/pods", &OK)?;
        let snapshot = AgentSnapshot::answered(&self.read("/v1/state", &OK)?)?;
        Ok(State { snapshot, pods })
    }

    fn document<T: DeserializeOwned>(&self, path: &str, expected: &[&str]) -> anyhow::Result<T> {
        let bytes = self.read(path, expected)?;
        serde_json::from_slice(&bytes).with_context(|| {
            format!("cannot read what the agent answers at {path}: it may be of another version")
        })
    }

    fn read(&self, path: &str, expected: &[&str]) -> anyhow::Result<Vec<u8>> {
        self.agent.ask_patiently(path, expected)?.ok_or_else(|| {
            anyhow!("no agent answers on {}: start sandprobe run, or give --socket", self.agent.place())
        })
    }

    /// Asks until nobody listens any more. The first time is an interval from now.
    pub(super) fn run(mut self, interval: Duration, told: &Sender<Message>, orders: &Receiver<Order>) {
        loop {
            let mut next = orders.recv_timeout(interval);
            while next == Ok(Order::Pause) {
                next = orders.recv().map_err(|_gone| RecvTimeoutError::Disconnected);
            }
            if next == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let answer = self.ask().map_err(|error| format!("{error:#}"));
            // Nothing is known of what happened meanwhile.
            self.last = self.last.filter(|_| answer.is_ok());
            if told.send(Message::Answer(answer.map(Box::new))).is_err() {
                return;
            }
        }
    }
}

impl Last {
    /// Nothing has happened since it was read.
    fn is_fresh(&self, now: &Doctor) -> bool {
        let agent = &self.doctor.agent;
        (&agent.instance, agent.seq) == (&now.agent.instance, now.agent.seq)
            && now.boot_ns.since(self.state.snapshot.now) < REREAD
    }
}
