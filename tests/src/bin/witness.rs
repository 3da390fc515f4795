//! A pod's program that says first of all what time it is: `CLOCK_BOOTTIME` in nanoseconds. Then it writes a file, after
//! so many milliseconds, if it is told to, and waits for its end.
//!
//! Small on purpose, with nothing of the harness in it: what is read from the disk before it can speak is late by that.

use std::{env, fs, process::ExitCode, thread, time::Duration};

use nix::{
    sys::signal::{SigSet, Signal},
    time::{ClockId, clock_gettime},
};

#[expect(clippy::print_stdout, reason = "the program's output")]
fn main() -> ExitCode {
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return ExitCode::FAILURE };
    println!("at {}{:09}", now.tv_sec(), now.tv_nsec());
    // The first process of a container gets no signal that it has no handler for.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    let words: Vec<String> = env::args().skip(1).collect();
    if let [path, after] = words.as_slice() {
        let Ok(after) = after.parse() else { return ExitCode::FAILURE };
        thread::sleep(Duration::from_millis(after));
        if fs::write(path, "FLANNEL_NETWORK=10.99.0.0/16\n").is_err() {
            return ExitCode::FAILURE;
        }
    }
    match signals.wait() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
