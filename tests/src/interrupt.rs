//! Ctrl-C for programs that must clean up. The signal becomes a condition that the program checks between its
//! steps.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Whether SIGINT or SIGTERM has come.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<(Mutex<bool>, Condvar)>);

impl Interrupt {
    /// From here on the two signals no longer end the program.
    pub fn watch() -> Result<Self> {
        let watch = Self(Arc::new((Mutex::new(false), Condvar::new())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate) = {
            let _context = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let raiser = watch.clone();
        std::thread::Builder::new()
            .name("interrupt".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
                });
                raiser.raise();
            })
            .context("start the thread that waits for ctrl-C")?;
        Ok(watch)
    }

    /// Waits for a signal, at most for `limit`. True if one has come.
    pub fn wait(&self, limit: Duration) -> bool {
        let (raised, changed) = &*self.0;
        let raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
        let (raised, _timeout) = changed
            .wait_timeout_while(raised, limit, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *raised
    }

    /// An error if a signal has come, so that `?` unwinds through the guards.
    pub fn check(&self) -> Result<()> {
        self.pause(Duration::ZERO)
    }

    /// Waits for `time`. An error if a signal has come.
    pub fn pause(&self, time: Duration) -> Result<()> {
        if self.wait(time) {
            bail!("interrupted");
        }
        Ok(())
    }

    fn raise(&self) {
        let (raised, changed) = &*self.0;
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}
