//! Diagnostics of the eBPF programs themselves, into the agent's own log.

use aya_log::EbpfLogger;

/// The reader of the programs' log: wait until it is readable, then `flush`.
pub type Logger = EbpfLogger<Forward>;

/// Hands records of the `log` crate, which aya speaks, to `tracing`.
pub struct Forward;

impl log::Log for Forward {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::info!(program = record.target(), level = %record.level(), "{}", record.args());
    }

    fn flush(&self) {}
}
