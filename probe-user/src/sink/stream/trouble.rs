//! Why the stream is not written at the moment. The writing thread and the loop report it; `/readyz` and the
//! metrics read it.

use tokio::sync::watch;

/// The current trouble, if any. A clone shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamTrouble(watch::Sender<Troubles>);

#[derive(Clone, Debug, Default)]
struct Troubles {
    failing: Option<String>,
    unread: Option<String>,
}

impl StreamTrouble {
    /// The trouble, if any: what fails, where, and what follows.
    #[must_use]
    pub(crate) fn shown(&self) -> Option<String> {
        let now = self.0.borrow();
        now.failing.clone().or_else(|| now.unread.clone())
    }

    /// Whether writes fail.
    pub(super) fn is_failing(&self) -> bool {
        self.0.borrow().failing.is_some()
    }

    /// Records whether a write failed (`Some`) or succeeded. Returns whether that differs from the previous
    /// write.
    pub(crate) fn failing(&self, now: Option<String>) -> bool {
        self.0.send_if_modified(|it| change(&mut it.failing, now))
    }

    /// Records whether events are dropped because nobody reads them (`Some`). Returns whether that is new.
    pub(super) fn unread(&self, now: Option<String>) -> bool {
        self.0.send_if_modified(|it| change(&mut it.unread, now))
    }
}

/// Changes the trouble. A lasting trouble keeps its first text.
fn change(slot: &mut Option<String>, now: Option<String>) -> bool {
    let is_new = slot.is_some() != now.is_some();
    if is_new {
        *slot = now;
    }
    is_new
}
