//! The server's way to the agent's loop. The server asks, the loop looks; what it found is the answer to all who ask
//! within a moment, so that the loop has the same work for one client and for a thousand.
//!
//! **Invariant:** the loop only looks and copies: what was found is put into words by the server's thread.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time,
};

use crate::{
    engine::Engine,
    model::time::Timestamp,
    sink::{Label, metrics::own::Process},
};

/// What was found is the answer for so long.
const FRESH: Duration = Duration::from_millis(250);
/// A loop that does not look within so long is as good as dead.
const PATIENCE: Duration = Duration::from_secs(3);
/// Questions that may wait: more than there are views.
const DEPTH: usize = 32;

/// What the loop has to look at.
pub(crate) struct Sight<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) label: &'a Label,
    /// In boot time.
    pub(crate) now: Timestamp,
    /// All that was on the node at the start has been looked at.
    pub(crate) has_listed: bool,
    /// Sets what metrics say of now.
    pub(crate) measure: &'a dyn Fn(),
    /// What the agent itself takes.
    pub(crate) process: &'a dyn Fn() -> Option<Process>,
}

type Ask = Box<dyn FnOnce(&Sight<'_>) + Send>;

#[derive(Clone, Debug)]
pub(crate) struct Asker {
    asks: mpsc::Sender<Ask>,
    patience: Duration,
}

/// What the loop is asked.
#[derive(Debug)]
pub(crate) struct Asks(mpsc::Receiver<Ask>);

/// The loop did not look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent did not answer within {} s", PATIENCE.as_secs())]
pub(crate) struct Unanswered;

#[must_use]
pub(crate) fn asks() -> (Asker, Asks) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Asker { asks: sender, patience: PATIENCE }, Asks(receiver))
}

impl Asks {
    /// The next question; never returns once no more can come.
    pub(crate) async fn next(&mut self) -> Ask {
        match self.0.recv().await {
            Some(ask) => ask,
            None => std::future::pending().await,
        }
    }
}

/// One way to look, and what was last found by it.
pub(super) struct View<T> {
    asker: Asker,
    look: Arc<dyn Fn(&Sight<'_>) -> T + Send + Sync>,
    found: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T: Send + Sync + 'static> View<T> {
    pub(super) fn new(asker: &Asker, look: impl Fn(&Sight<'_>) -> T + Send + Sync + 'static) -> Self {
        Self { asker: asker.clone(), look: Arc::new(look), found: Mutex::new(None) }
    }

    /// What there is now, or was a moment ago. Who asks meanwhile waits for the same answer.
    pub(super) async fn get(&self) -> Result<Arc<T>, Unanswered> {
        let mut found = self.found.lock().await;
        if let Some((at, known)) = found.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(known));
        }
        let (answer, answered) = oneshot::channel();
        let look = Arc::clone(&self.look);
        let ask: Ask = Box::new(move |sight| {
            answer.send(look(sight)).ok();
        });
        let asked = async {
            self.asker.asks.send(ask).await.ok()?;
            answered.await.ok()
        };
        let it = time::timeout(self.asker.patience, asked).await.ok().flatten().ok_or(Unanswered)?;
        let it = Arc::new(it);
        *found = Some((Instant::now(), Arc::clone(&it)));
        Ok(it)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::runtime;

    use super::{Arc, Asks, Sight, Timestamp, Unanswered, View, asks};
    use crate::{
        engine::{Engine, Settings},
        sink::Label,
    };

    async fn answer(mut asks: Asks) {
        let engine = Engine::new(Settings::default());
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        loop {
            let ask = asks.next().await;
            ask(&Sight {
                engine: &engine,
                label: &label,
                now: Timestamp(7),
                has_listed: true,
                measure: &|| {},
                process: &|| None,
            });
        }
    }

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn many_who_ask_at_once_are_one_question() {
        runtime().block_on(async {
            let (asker, asks) = asks();
            let looks = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&looks);
            let view = Arc::new(View::new(&asker, move |sight| {
                counted.fetch_add(1, Ordering::Relaxed);
                sight.now
            }));
            let clients: Vec<_> = (0..100)
                .map(|_| {
                    let view = Arc::clone(&view);
                    tokio::spawn(async move { view.get().await })
                })
                .collect();
            tokio::spawn(answer(asks));
            for client in clients {
                let found = client.await.expect("no panic").expect("an answer");
                assert_eq!(*found, Timestamp(7));
            }
            assert_eq!(looks.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn a_loop_that_does_not_look_is_told_of() {
        runtime().block_on(async {
            let (asker, asks) = asks();
            let asker = super::Asker { patience: std::time::Duration::from_millis(10), ..asker };
            let view = View::new(&asker, |_| ());
            assert_eq!(view.get().await.expect_err("nobody looks"), Unanswered);
            drop(asks);
            assert_eq!(view.get().await.expect_err("nobody is there"), Unanswered);
        });
    }
}
