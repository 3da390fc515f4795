//! The sandbox's init: holds the pod's namespaces open and reaps the processes orphaned in them.
//!
//! SIGTERM and SIGINT end it with 0. All three signals are blocked and waited for, so there is no handler and
//! no moment in which one could be missed.

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

/// One SIGCHLD may stand for several children: take all that ended.
fn reap() {
    let any = Pid::from_raw(-1);
    while matches!(
        waitpid(any, Some(WaitPidFlag::WNOHANG)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    ) {}
}
