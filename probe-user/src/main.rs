//! The program `sandprobe`.

#[cfg(any(test, target_env = "musl"))]
mod memcmp;
#[cfg(all(target_arch = "x86_64", any(test, all(target_env = "musl", optimized))))]
mod memcpy;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A release aborts by itself.
    #[cfg(all(feature = "live", panic = "unwind"))]
    probe_user::confine::refusal::abort_by_panic();
    probe_user::cli::main(std::env::args_os())
}
