//! Reports system calls that the filters refuse: either a list is wrong or an intruder made the call.
//!
//! The kernel raises `SIGSYS` in the thread that made the call, before the call begins (`SECCOMP_RET_TRAP`,
//! seccomp(2)). The handler notes the call and makes it fail with `EPERM`, so that the caller continues as
//! with any forbidden call.
//!
//! **Invariant:** the handler does only what is signal-safe (signal-safety(7)): it reads the thread's id,
//! stores numbers, and changes the saved registers.

use std::{
    ffi::{c_int, c_void},
    fs, io, panic, process, ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use tracing::error;

/// More than the numbers of all calls (asm/unistd.h has some 470). Larger numbers share the last place.
const KNOWN: usize = 512;
/// The value in place of the thread, once the refusal was logged.
const LOGGED: u32 = u32::MAX;

static COUNT: AtomicU64 = AtomicU64::new(0);
/// The first thread to which each call was refused, by the call's number.
static THREADS: [AtomicU32; KNOWN] = [const { AtomicU32::new(0) }; KNOWN];

/// The signal that announces a refusal.
pub const SIGNAL: c_int = libc::SIGSYS;

/// `SYS_SECCOMP` of asm-generic/siginfo.h, which libc lacks: a filter sent the signal, not kill(2).
const OF_A_FILTER: c_int = 1;

/// Returns how many calls were refused.
#[must_use]
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Logs each refused call that was not logged before.
pub(crate) fn log_new() {
    for (call, thread) in untold() {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        let name = name.map_or_else(|_ended| thread.to_string(), |name| name.trim_end().to_owned());
        error!(call, thread = name, "system call refused: sandprobe's own confinement does not have it");
    }
}

/// Returns refused calls that were not logged before, by number, with the first thread to which each was
/// refused.
pub fn untold() -> Vec<(usize, u32)> {
    let mut refused = Vec::new();
    for (call, thread) in THREADS.iter().enumerate() {
        if !matches!(thread.load(Ordering::Relaxed), 0 | LOGGED) {
            refused.push((call, thread.swap(LOGGED, Ordering::Relaxed)));
        }
    }
    refused
}

/// Notes refused calls from now on.
pub(super) fn begin() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = refuse;
    // SAFETY: all zeros is a valid action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is initialized, and its handler takes three arguments.
    if unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// From now on a panic in any thread is reported and ends the process by `SIGABRT`.
///
/// musl's abort(3) sends the signal with tkill(2), which is refused: it may address a thread of any process,
/// and a filter cannot see whose thread a number is. musl also blocks `SIGSYS` then, so the refusal would end
/// the process by another signal.
pub fn abort_by_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        abort()
    }));
}

fn abort() -> ! {
    let own = nix::unistd::gettid().as_raw();
    // SAFETY: all arguments are numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, process::id(), own, libc::SIGABRT) };
    // The signal is blocked or handled.
    process::abort()
}

extern "C" fn refuse(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, for this thread alone, while this function runs (`SA_SIGINFO`).
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    if info.si_code != OF_A_FILTER {
        return;
    }
    let call = answer(context, -i64::from(libc::EPERM));
    let call = usize::try_from(call).map_or(KNOWN - 1, |call| call.min(KNOWN - 1));
    if let Some(thread) = THREADS.get(call) {
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        thread.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).ok();
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Makes the call return this value. Returns the number of the call, which the kernel has restored
/// (`syscall_rollback`).
#[cfg(target_arch = "x86_64")]
fn answer(context: &mut libc::ucontext_t, with: i64) -> i64 {
    // `REG_RAX` of sys/ucontext.h.
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, rax, ..] = &mut context.uc_mcontext.gregs;
    std::mem::replace(rax, with)
}

#[cfg(target_arch = "aarch64")]
fn answer(context: &mut libc::ucontext_t, with: i64) -> i64 {
    let [x0, _, _, _, _, _, _, _, x8, ..] = &mut context.uc_mcontext.regs;
    *x0 = with.cast_unsigned();
    x8.cast_signed()
}
