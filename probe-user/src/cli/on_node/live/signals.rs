//! The signals that end a run, make the server read its files again, or report a refused system call.

use std::future;

use anyhow::anyhow;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::{confine::refusal, source::task::channel::CancellationToken};

/// Completes at SIGINT (ctrl-C) or SIGTERM, and at SIGHUP unless the run outlives its terminal. In that case
/// the signal is returned for another use.
pub(super) fn to_end(outlives_terminal: bool) -> anyhow::Result<(impl Future<Output = ()>, Option<Signal>)> {
    let mut interrupt = hear(SignalKind::interrupt())?;
    let mut terminate = hear(SignalKind::terminate())?;
    let hangup = hear(SignalKind::hangup())?;
    let (mut ends, other) = if outlives_terminal { (None, Some(hangup)) } else { (Some(hangup), None) };
    let end = async move {
        let hung_up = async {
            match &mut ends {
                Some(hangup) => hangup.recv().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
    };
    Ok((end, other))
}

/// Reads the server's files again at each SIGHUP. A terminal that closes sends the same signal to its
/// processes.
pub(super) async fn hangups(mut hangup: Signal, reload: impl Fn(), mut stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.requested() => return,
            heard = hangup.recv() => if heard.is_none() { return },
        }
        info!("SIGHUP: the server's certificate, key and token are looked at; nothing else changes");
        reload();
    }
}

/// Logs the system calls that were refused to a thread.
pub(super) async fn refusals(mut refused: Signal, mut stop: CancellationToken) {
    loop {
        refusal::log_new();
        tokio::select! {
            () = stop.requested() => return,
            _ = refused.recv() => {}
        }
    }
}

pub(super) fn hear(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).map_err(|error| anyhow!("cannot hear signals: {error}"))
}
