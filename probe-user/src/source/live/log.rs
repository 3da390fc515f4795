//! Forwards the log of the eBPF programs to the agent's own log.

use aya_log::EbpfLogger;

/// Reads the programs' log: wait until it is readable, then call `flush`.
pub(crate) type Logger = EbpfLogger<Forward>;

/// Forwards records of the `log` crate, which aya uses, to `tracing`.
pub(crate) struct Forward;

impl log::Log for Forward {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::info!(program = record.target(), level = %record.level(), "{}", record.args());
    }

    fn flush(&self) {}
}
