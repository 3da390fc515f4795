//! The page that the programs share with the agent that reads the rings, and the report that the agent leaves
//! beside it. The programs do nothing once no agent has read for a long time: they may outlive the agent, and
//! then cost as little as possible.

use aya_ebpf::{helpers::generated::bpf_ktime_get_ns, macros::map, maps::Array};
use probe_common::reader_page::{REPORT as REPORT_LEN, Reader};

use crate::{emit, kernel::switch};

/// `BPF_F_MMAPABLE`: the agent writes to it without a call.
pub(crate) const MMAPABLE: u32 = 1 << 10;

#[map]
static READER: Array<Reader> = Array::with_max_entries(1, MMAPABLE);

/// How each signal is seen, for the next agent. The programs do not use it.
#[map]
static REPORT: Array<[u8; REPORT_LEN]> = Array::with_max_entries(1, 0);

/// Whether no agent has read for a long time. Then this run is counted, and must do nothing.
#[inline(always)]
pub(crate) fn is_away() -> bool {
    let Some(reader) = READER.get_ptr(0) else { return false };
    // SAFETY: a map's value stays readable while the program runs. The agent may write to it at any time, one
    // word at once.
    let read_at = unsafe { core::ptr::read_volatile(&raw const (*reader).read_at) };
    // SAFETY: a helper without arguments.
    let away = unsafe { bpf_ktime_get_ns() }.wrapping_sub(read_at) as i64;
    let is_away = away > switch!(patience) as i64;
    if is_away {
        emit::tally(|tally| tally.unread += 1);
    }
    is_away
}
