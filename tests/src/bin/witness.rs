//! A pod's program that first prints the time: `CLOCK_BOOTTIME` in nanoseconds. With arguments it then waits
//! for some milliseconds, writes a file or listens at a port, and prints when it did. Then it waits for its
//! end.
//!
//! It is small and has nothing of the harness in it, because reading a large program from the disk would
//! delay the first line.

use std::{env, fs, net::TcpListener, process::ExitCode, thread, time::Duration};

use nix::{
    sys::signal::{SigSet, Signal},
    time::{ClockId, clock_gettime},
};

#[expect(clippy::print_stdout, reason = "the program's output")]
fn main() -> ExitCode {
    let Some(at) = now() else { return ExitCode::FAILURE };
    println!("at {at}");
    // The first process of a container gets no signal that it has no handler for.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    let words: Vec<String> = env::args().skip(1).collect();
    let mut listener = None;
    if let [what, after] = words.as_slice() {
        let Ok(after) = after.parse() else { return ExitCode::FAILURE };
        thread::sleep(Duration::from_millis(after));
        if let Ok(port) = what.parse::<u16>() {
            let from = now();
            listener = TcpListener::bind(("0.0.0.0", port)).ok();
            let (Some(_), Some(from), Some(to)) = (&listener, from, now()) else { return ExitCode::FAILURE };
            println!("listening {from} {to}");
        } else if fs::write(what, "FLANNEL_NETWORK=10.99.0.0/16\n").is_err() {
            return ExitCode::FAILURE;
        }
    }
    let ended = signals.wait();
    drop(listener);
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn now() -> Option<String> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    Some(format!("{}{:09}", now.tv_sec(), now.tv_nsec()))
}
