//! What crosses from the eBPF programs to the agent: records, ids, knobs and counters.
//!
//! Both sides are built from the same commit and shipped in one binary, so a record has no version. Programs
//! that outlive their agent are the exception: `reader_page::VERSION` is the version of everything that they
//! leave to the next agent. What is kept on disk has its own format (`probe_user::recording`). The rules:
//!
//! * `repr(C)`, no padding (`IntoBytes` refuses it), so no byte of kernel memory leaves unset;
//! * no `bool`, `Option`, pointer or data enum: a kind crosses as a number and is checked in `parse`;
//! * all times are `CLOCK_BOOTTIME` nanoseconds, all text is bytes;
//! * fixed part first, then the variable tail, whose lengths are in the fixed part.
#![no_std]
#![forbid(unsafe_code)]

pub mod event;
pub mod id;
pub mod knob;
pub mod name;
pub mod netns;
pub mod reader_page;
pub mod runtime;
pub mod table;
pub mod tally;
pub mod text;
