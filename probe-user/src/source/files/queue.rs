//! Questions that wait for the reader of the node's files.
//!
//! **Invariant:** at most [`MAX_WAITING`] wait. If there is no room, the least important question is dropped.

use std::collections::VecDeque;

use crate::{
    model::{change::Question, time::Timestamp},
    source::files::answer::{First, SlowPhase},
};

/// The most questions that wait. All containers and pods of a full node may be asked for at once.
pub(super) const MAX_WAITING: usize = 4096;
/// How many questions are answered in one batch, so that the names of a burst of containers arrive together.
pub(super) const BATCH_SIZE: usize = 64;

/// How many slow phases are searched for together.
const MAX_SLOW_PHASES: usize = 256;

/// A question, and when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) at: Timestamp,
    pub(super) question: Question,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Asked>,
    /// Slow phases, for which the logs are searched once nothing else waits.
    slow: Vec<SlowPhase>,
    /// Since when a list of the whole node has been wanted.
    pub(super) relist: Option<Timestamp>,
    /// Since when a list of the records has been wanted.
    pub(super) reread: Option<Timestamp>,
    pub(super) dropped: u64,
}

impl Queue {
    pub(super) fn ask(&mut self, question: Question, at: Timestamp) {
        match question {
            // One pass answers all such questions.
            Question::Relist => _ = self.relist.get_or_insert(at),
            Question::Records => _ = self.reread.get_or_insert(at),
            // One search answers all that wait.
            Question::ImageWork { container, from, until } => {
                self.search(SlowPhase { before: First::Container(container), time: from..until });
            }
            Question::HeldRequests { sandbox, from, until } => {
                self.search(SlowPhase { before: First::Sandbox(sandbox), time: from..until });
            }
            question => {
                if self.waiting.iter().any(|it| it.question == question) {
                    return;
                }
                self.waiting.push_back(Asked { at, question });
                if self.waiting.len() > MAX_WAITING {
                    self.drop_one();
                }
            }
        }
    }

    fn search(&mut self, slow: SlowPhase) {
        if self.slow.len() < MAX_SLOW_PHASES {
            self.slow.push(slow);
        } else {
            self.dropped += 1;
        }
    }

    /// Takes the oldest questions, to be answered together.
    pub(super) fn take(&mut self) -> Vec<Asked> {
        self.waiting.drain(..self.waiting.len().min(BATCH_SIZE)).collect()
    }

    /// Takes the slow phases, to be searched for together.
    pub(super) fn take_slow(&mut self) -> Vec<SlowPhase> {
        std::mem::take(&mut self.slow)
    }

    pub(super) fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Puts back slow phases that could not be searched for. If there are too many, the newest are dropped.
    pub(super) fn put_back_slow(&mut self, mut slow: Vec<SlowPhase>) {
        slow.append(&mut self.slow);
        let too_many = slow.len().saturating_sub(MAX_SLOW_PHASES);
        slow.truncate(MAX_SLOW_PHASES);
        self.slow = slow;
        self.dropped += u64::try_from(too_many).unwrap_or(u64::MAX);
    }

    /// Puts back questions that could not be answered; they come first again.
    pub(super) fn put_back(&mut self, asked: Vec<Asked>) {
        asked.into_iter().rev().for_each(|it| self.waiting.push_front(it));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
            + self.slow.len()
            + usize::from(self.relist.is_some())
            + usize::from(self.reread.is_some())
    }

    /// Returns since when the oldest question has waited.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.waiting.front().map(|it| it.at).into_iter().chain(self.relist).chain(self.reread).min()
    }

    /// Drops the newest of the least important questions.
    fn drop_one(&mut self) {
        let least = (0..self.waiting.len())
            .rev()
            .min_by_key(|at| self.waiting.get(*at).map(|it| importance(&it.question)));
        if let Some(at) = least {
            self.waiting.remove(at);
            self.dropped += 1;
        }
    }
}

/// Returns how much a question matters. Names matter most: events without a container's name are of little
/// use. The node's load only adds a figure to a verdict.
fn importance(question: &Question) -> u8 {
    match question {
        Question::Pressure { .. } => 0,
        Question::Program { .. } => 1,
        Question::Message { .. } => 2,
        Question::Pod { .. } | Question::Expected { .. } => 3,
        Question::Container { .. }
        | Question::Netns { .. }
        | Question::Process { .. }
        | Question::ProcessNetns { .. } => 4,
        Question::Relist
        | Question::Records
        | Question::Watch { .. }
        | Question::Statuses
        | Question::ImageWork { .. }
        | Question::HeldRequests { .. } => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_SIZE, First, MAX_SLOW_PHASES, MAX_WAITING, Queue};
    use crate::model::{change::Question, id::ContainerId, time::Timestamp};

    fn container(n: usize) -> Question {
        Question::Container { id: ContainerId::parse(&format!("c{n}")).expect("an id") }
    }

    fn program(n: usize) -> Question {
        Question::Program { path: format!("/opt/cni/bin/{n}") }
    }

    #[test]
    fn what_is_worth_least_goes_first_and_is_counted() {
        let mut queue = Queue::default();
        (0..10).for_each(|n| queue.ask(program(n), Timestamp(1)));
        for n in 0..MAX_WAITING {
            queue.ask(container(n), Timestamp(2));
        }
        assert_eq!((queue.len(), queue.dropped, queue.oldest()), (MAX_WAITING, 10, Some(Timestamp(2))));
        queue.ask(container(MAX_WAITING), Timestamp(3));
        assert_eq!((queue.len(), queue.dropped), (MAX_WAITING, 11));
        assert_eq!(queue.take().first().map(|it| it.question.clone()), Some(container(0)), "the newest went");
    }

    #[test]
    fn searches_wait_apart_and_are_bounded() {
        let mut queue = Queue::default();
        let id = |n: usize| ContainerId::parse(&format!("c{n}")).expect("an id");
        let search = |n| Question::ImageWork { container: id(n), from: Timestamp(1), until: Timestamp(2) };
        (0..MAX_SLOW_PHASES + 2).for_each(|n| queue.ask(search(n), Timestamp(3)));
        queue.ask(container(0), Timestamp(3));
        assert_eq!((queue.take().len(), queue.len(), queue.dropped), (1, MAX_SLOW_PHASES, 2));
        let slow = queue.take_slow();
        assert_eq!((slow.len(), queue.len()), (MAX_SLOW_PHASES, 0));
        // While the search hangs, more phases are asked for.
        (0..MAX_SLOW_PHASES).for_each(|n| queue.ask(search(MAX_SLOW_PHASES + n), Timestamp(3)));
        queue.put_back_slow(slow);
        assert_eq!((queue.len(), queue.dropped), (MAX_SLOW_PHASES, 2 + MAX_SLOW_PHASES as u64));
        let kept = queue.take_slow();
        let oldest = kept.first().map(|it| &it.before);
        assert!(matches!(oldest, Some(First::Container(it)) if *it == id(0)), "the newest go: {oldest:?}");
    }

    #[test]
    fn what_waits_already_is_asked_once_and_keeps_its_place() {
        let mut queue = Queue::default();
        for at in 1..=3 {
            (0..100).for_each(|n| queue.ask(container(n), Timestamp(at)));
            queue.ask(Question::Relist, Timestamp(at));
        }
        assert_eq!((queue.len(), queue.oldest()), (101, Some(Timestamp(1))));
        let first = queue.take();
        assert_eq!(first.len(), BATCH_SIZE);
        queue.put_back(first.clone());
        assert_eq!((queue.take(), queue.len()), (first, 101 - BATCH_SIZE));
    }
}
