//! The init of a sandbox. It holds the pod's namespaces open and reaps the orphaned processes in them.
//!
//! SIGTERM and SIGINT end it with 0. All three signals are blocked and waited for. So there is no handler,
//! and no signal can be missed.

use std::process::ExitCode;

use nix::{
    sys::{
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

fn main() -> ExitCode {
    let signals: SigSet = [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => reap(),
            Ok(_) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// Reaps all children that have ended, because one SIGCHLD may stand for several.
fn reap() {
    let any = Pid::from_raw(-1);
    while matches!(
        waitpid(any, Some(WaitPidFlag::WNOHANG)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    ) {}
}
