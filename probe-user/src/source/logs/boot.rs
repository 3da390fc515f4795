//! When the shutdown before this boot was ordered, if no agent saw it: from the journal or `/var/log/wtmp`.
//!
//! systemd-logind logs the start of each shutdown to the journal, regardless of who ordered it. In wtmp,
//! `shutdown` writes a record (`RUN_LVL`) late, when services have ended: the order was given at that time or
//! before. Distributions that dropped wtmp, because its times end in 2038, have no record.

pub(crate) mod unseen;

use std::io::{Read as _, Seek as _, SeekFrom};

use super::plugin_log::{self, Sender, TEXT, Window};
use crate::{
    model::recovery::{Ordered, Source},
    source::{
        host::{HostRoot, ReadError},
        node::clock,
    },
};

const WTMP: &str = "/var/log/wtmp";
/// How much is read of the file's end, bytes.
const END_BYTES: u64 = 8 << 20;

/// `struct utmp` of glibc (bits/utmp.h). Its times have 32 bits on platforms with a 32-bit ABI beside the
/// 64-bit one, and 64 bits elsewhere.
#[derive(Clone, Copy, Debug)]
struct Layout {
    size: usize,
    time: usize,
    wide: bool,
}

const NARROW: Layout = Layout { size: 384, time: 340, wide: false };
const WIDE: Layout = Layout { size: 400, time: 344, wide: true };
const OWN: Layout =
    if cfg!(any(target_arch = "aarch64", target_arch = "loongarch64")) { WIDE } else { NARROW };

/// `ut_type`, `ut_line` and `ut_user`.
const TYPE: usize = 0;
const USER: std::ops::Range<usize> = 44..76;
const RUN_LVL: i16 = 1;
const BOOT_TIME: i16 = 2;

/// How far the record of this boot may be from the boot itself. It is written once the file system is
/// mounted, by a clock that may just have been set.
const NEAR_NS: i64 = 10 * 60 * 1_000_000_000;

/// How logind's messages about a shutdown begin (systemd, `logind-action.c`, `log_message`).
const LOGIND: [&str; 3] = ["System is rebooting", "System is powering down", "System is halting"];
/// How long before the boot to search for the order. No shutdown takes longer.
const MAX_SHUTDOWN_NS: i64 = 60 * 60 * 1_000_000_000;
/// The hardware clock counts whole seconds.
const SLACK_NS: i64 = 2_000_000_000;

/// Finds the shutdown before this boot, if there is a record of it.
#[must_use]
pub(crate) fn ordered(root: &HostRoot, boot_wall_ns: i64) -> Option<Ordered> {
    logged(root, boot_wall_ns).or_else(|| recorded(root, boot_wall_ns))
}

/// Finds the last shutdown that logind logged before the boot.
fn logged(root: &HostRoot, boot_wall_ns: i64) -> Option<Ordered> {
    let window = Window {
        from: clock::micros(boot_wall_ns.saturating_sub(MAX_SHUTDOWN_NS)),
        until: clock::micros(boot_wall_ns.saturating_add(SLACK_NS)),
    };
    let mut last: Option<(u64, String)> = None;
    // Files that cannot be read are skipped.
    let _unreadable = plugin_log::each(root, window, Sender::Logind, &mut |at, text| {
        if is_order(text) && last.as_ref().is_none_or(|(known, _)| at > *known) {
            last = Some((at, text.chars().take(TEXT).collect()));
        }
    });
    let (at, text) = last?;
    let wall_ns = i64::try_from(at).ok()?.checked_mul(1000)?;
    Some(Ordered { wall_ns, by: format!("systemd-logind: {text}"), source: Source::Journal })
}

fn is_order(text: &str) -> bool {
    LOGIND.iter().any(|begin| text.starts_with(begin))
}

fn recorded(root: &HostRoot, boot_wall_ns: i64) -> Option<Ordered> {
    let bytes = end(root, OWN).ok()?;
    let wall_ns = shutdown(&bytes, OWN, boot_wall_ns)?;
    Some(Ordered { wall_ns, by: format!("shutdown record in {WTMP}"), source: Source::Wtmp })
}

/// Reads the last complete records of the file.
fn end(root: &HostRoot, layout: Layout) -> Result<Vec<u8>, ReadError> {
    let mut file = root.plain(WTMP)?;
    let size = file.seek(SeekFrom::End(0))?;
    let record = layout.size as u64;
    let whole = size / record;
    let from = whole.saturating_sub(END_BYTES / record) * record;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(END_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the time of a shutdown's record, if no other boot followed it.
fn shutdown(bytes: &[u8], layout: Layout, boot_wall_ns: i64) -> Option<i64> {
    let mut last = None;
    let mut of_last_boot = None;
    for record in bytes.chunks_exact(layout.size) {
        let Some(at) = time(record, layout) else { continue };
        match kind(record) {
            Some(RUN_LVL) if user(record) == b"shutdown" => last = Some(at),
            Some(BOOT_TIME) => of_last_boot = Some((at, last.take())),
            _ => {}
        }
    }
    // Either this boot has no record yet, or the last record is this boot's.
    last.or_else(|| of_last_boot.filter(|(at, _)| at.abs_diff(boot_wall_ns) <= NEAR_NS.unsigned_abs())?.1)
}

fn kind(record: &[u8]) -> Option<i16> {
    Some(i16::from_ne_bytes(*record.get(TYPE..)?.first_chunk()?))
}

fn user(record: &[u8]) -> &[u8] {
    record.get(USER).and_then(|user| user.split(|byte| *byte == 0).next()).unwrap_or_default()
}

/// Returns `ut_tv` in ns since the epoch.
fn time(record: &[u8], layout: Layout) -> Option<i64> {
    let at = record.get(layout.time..)?;
    let (seconds, micros) = if layout.wide {
        (i64::from_ne_bytes(*at.first_chunk()?), i64::from_ne_bytes(*at.get(8..)?.first_chunk()?))
    } else {
        (narrow(at)?, narrow(at.get(4..)?)?)
    };
    seconds.checked_mul(1_000_000_000)?.checked_add(micros.checked_mul(1_000)?)
}

fn narrow(at: &[u8]) -> Option<i64> {
    Some(i64::from(i32::from_ne_bytes(*at.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{BOOT_TIME, Layout, NARROW, OWN, RUN_LVL, WIDE, is_order, ordered, shutdown};
    use crate::{model::recovery::Source, source::host::HostRoot};

    const SECOND: i64 = 1_000_000_000;

    fn record(layout: Layout, kind: i16, user: &str, seconds: i32) -> Vec<u8> {
        let mut bytes = vec![0; layout.size];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        bytes[44..44 + user.len()].copy_from_slice(user.as_bytes());
        if layout.wide {
            bytes[layout.time..layout.time + 8].copy_from_slice(&i64::from(seconds).to_ne_bytes());
        } else {
            bytes[layout.time..layout.time + 4].copy_from_slice(&seconds.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn file(layout: Layout, records: &[(i16, &str, i32)]) -> Vec<u8> {
        records.iter().flat_map(|(kind, user, at)| record(layout, *kind, user, *at)).collect()
    }

    #[test]
    fn the_shutdown_before_this_boot_is_found_and_no_other() {
        for layout in [NARROW, WIDE] {
            let find = |records: &[(i16, &str, i32)], boot: i64| {
                shutdown(&file(layout, records), layout, boot * SECOND).map(|at| at / SECOND)
            };
            let (up, down, login) = ((BOOT_TIME, "reboot"), (RUN_LVL, "shutdown"), (7, "root"));
            let at = |(kind, user): (i16, &'static str), at: i32| (kind, user, at);
            // All records in order, with this boot's own record and without it.
            let known = [at(up, 1000), at(login, 1500), at(down, 9000), at(up, 9030)];
            assert_eq!(find(&known, 9020), Some(9000));
            assert_eq!(find(&known[..3], 9020), Some(9000));
            // The power failed: the shutdown before the previous boot did not lead to this one.
            assert_eq!(find(&known, 20_000), None);
            assert_eq!(find(&[at(up, 1000), at(login, 1500), at(up, 9030)], 9020), None);
            assert_eq!(find(&[at((RUN_LVL, "runlevel"), 8000)], 9020), None);
        }
    }

    #[test]
    fn logind_says_how_it_ends() {
        for order in
            ["System is rebooting.", "System is rebooting with kexec.", "System is powering down (now)."]
        {
            assert!(is_order(order), "{order}");
        }
        for other in ["System is up", "Suspending system...", "the System is rebooting."] {
            assert!(!is_order(other), "{other}");
        }
    }

    #[test]
    fn a_node_without_it_has_no_answer() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = HostRoot::open(dir.path()).expect("the root");
        assert_eq!(ordered(&root, 0), None);
        fs::create_dir_all(dir.path().join("var/log")).expect("a folder");
        // A record that is cut off does not count.
        let mut bytes = file(OWN, &[(RUN_LVL, "shutdown", 5)]);
        bytes.extend([0; 17]);
        fs::write(dir.path().join("var/log/wtmp"), bytes).expect("a file");
        let found = ordered(&root, 6 * SECOND).expect("a shutdown");
        assert_eq!((found.wall_ns, found.source), (5 * SECOND, Source::Wtmp));
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            shutdown(&bytes, NARROW, 0);
            shutdown(&bytes, WIDE, 0);
        }
    }
}
