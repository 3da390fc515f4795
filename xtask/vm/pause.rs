//! The init of every sandbox: holds its namespaces, reaps orphans, and ends on SIGINT or SIGTERM.
//! rustc builds it alone, for musl, so that its image needs no library.
#![no_main]

use std::ffi::{c_int, c_void};

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;
const SIGCHLD: c_int = 17;
const SIG_BLOCK: c_int = 0;
const WNOHANG: c_int = 1;

/// A signal set of musl's size.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut c_void) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// PID 1 receives no signal that it neither handles nor blocks, so it blocks these three and waits for them.
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    let mut set = SignalSet([0; 128]);
    // SAFETY: the set is ours, and as large and aligned as the C library's own.
    unsafe {
        sigemptyset(&mut set);
        for signal in [SIGINT, SIGTERM, SIGCHLD] {
            sigaddset(&mut set, signal);
        }
        sigprocmask(SIG_BLOCK, &set, std::ptr::null_mut());
    }
    loop {
        let mut signal = 0;
        // SAFETY: both pointers are to live values of the right types.
        unsafe { sigwait(&set, &mut signal) };
        match signal {
            SIGINT | SIGTERM => return 0,
            // SAFETY: a null status is allowed.
            _ => while unsafe { waitpid(-1, std::ptr::null_mut(), WNOHANG) } > 0 {},
        }
    }
}
