//! Questions that wait for the reader of the node's files.
//!
//! **Invariant:** at most [`MAX_WAITING`] wait. If there is no room, the least important question is dropped.

use std::collections::VecDeque;

use crate::{
    model::{change::Question, time::Timestamp},
    source::files::answer::{About, AskedPod, LogSearch},
};

/// The most questions that wait. All containers and pods of a full node may be asked for at once.
pub(super) const MAX_WAITING: usize = 4096;
/// How many questions are answered in one batch, so that the names of a burst of containers arrive together.
pub(super) const BATCH_SIZE: usize = 64;

/// How many searches of the logs are made together.
const MAX_SEARCHES: usize = 256;

/// A question, and when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) at: Timestamp,
    pub(super) question: Question,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Asked>,
    /// What the logs are searched for, once nothing else waits.
    searches: Vec<LogSearch>,
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
                self.search(LogSearch { about: About::Container(container), time: from..until });
            }
            Question::HeldRequests { sandbox, from, until } => {
                self.search(LogSearch { about: About::Sandbox(sandbox), time: from..until });
            }
            Question::Words { uid, namespace, name, sandboxes, container, since } => {
                let pod = AskedPod { uid, namespace, name, sandboxes, container };
                self.search(LogSearch { about: About::Pod(pod), time: since..at });
            }
            Question::DaemonWords { daemon, since } => {
                self.search(LogSearch { about: About::Daemon(daemon), time: since..at });
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

    fn search(&mut self, searches: LogSearch) {
        if self.searches.len() < MAX_SEARCHES {
            self.searches.push(searches);
        } else {
            self.dropped += 1;
        }
    }

    /// Takes the oldest questions, to be answered together.
    pub(super) fn take(&mut self) -> Vec<Asked> {
        self.waiting.drain(..self.waiting.len().min(BATCH_SIZE)).collect()
    }

    /// Takes the searches, to be made together.
    pub(super) fn take_searches(&mut self) -> Vec<LogSearch> {
        std::mem::take(&mut self.searches)
    }

    pub(super) fn has_searches(&self) -> bool {
        !self.searches.is_empty()
    }

    /// Puts back searches that could not be made. If there are too many, the newest are dropped.
    pub(super) fn put_back_searches(&mut self, mut searches: Vec<LogSearch>) {
        searches.append(&mut self.searches);
        let too_many = searches.len().saturating_sub(MAX_SEARCHES);
        searches.truncate(MAX_SEARCHES);
        self.searches = searches;
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
            + self.searches.len()
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
        | Question::Held { .. }
        | Question::Statuses
        | Question::ImageWork { .. }
        | Question::Words { .. }
        | Question::DaemonWords { .. }
        | Question::HeldRequests { .. } => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::{About, BATCH_SIZE, MAX_SEARCHES, MAX_WAITING, Queue};
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
        (0..MAX_SEARCHES + 2).for_each(|n| queue.ask(search(n), Timestamp(3)));
        queue.ask(container(0), Timestamp(3));
        assert_eq!((queue.take().len(), queue.len(), queue.dropped), (1, MAX_SEARCHES, 2));
        let searches = queue.take_searches();
        assert_eq!((searches.len(), queue.len()), (MAX_SEARCHES, 0));
        // While the search hangs, more phases are asked for.
        (0..MAX_SEARCHES).for_each(|n| queue.ask(search(MAX_SEARCHES + n), Timestamp(3)));
        queue.put_back_searches(searches);
        assert_eq!((queue.len(), queue.dropped), (MAX_SEARCHES, 2 + MAX_SEARCHES as u64));
        let kept = queue.take_searches();
        let oldest = kept.first().map(|it| &it.about);
        assert!(matches!(oldest, Some(About::Container(it)) if *it == id(0)), "the newest go: {oldest:?}");
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
