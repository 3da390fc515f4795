//! Counts the boots between the last one that an agent saw and this one, from the machine's own logs.
//!
//! The journal has the id of each boot that logged to it. wtmp has a record of each boot, with its time only.
//! Both are cut off at some age, and a boot may have been too short to be logged. So the count is a lower
//! bound, and a missing record proves nothing.

use super::{BOOT_TIME, Layout, NEAR_NS, OWN, SLACK_NS, end, kind, time};
use crate::{
    model::recovery::{Last, Source, Unseen},
    source::{
        host::HostRoot,
        logs::plugin_log::{self, Window},
        node::clock,
    },
};

/// Counts the boots by the log that shows more of them.
#[must_use]
pub(crate) fn unseen(root: &HostRoot, last: &Last, boot_wall_ns: i64) -> Option<Unseen> {
    let logged = logged(root, last, boot_wall_ns);
    let recorded = end(root, OWN).ok().and_then(|bytes| counted(&bytes, OWN, last, boot_wall_ns));
    logged.into_iter().chain(recorded).max_by_key(|found| found.boots)
}

fn logged(root: &HostRoot, last: &Last, boot_wall_ns: i64) -> Option<Unseen> {
    let window = Window {
        from: clock::micros(last.began_wall_ns),
        until: clock::micros(boot_wall_ns.saturating_add(SLACK_NS)),
    };
    let found = plugin_log::boots(root, window)
        .into_iter()
        .filter(|(id, _)| !last.known.iter().any(|known| known.replace('-', "") == *id));
    of(found.filter_map(|(_, at)| i64::try_from(at).ok()?.checked_mul(1000)), Source::Journal)
}

/// Counts the boots after the last sign of life of the known boot. Without a record of the known boot itself,
/// the others cannot be distinguished from it.
fn counted(bytes: &[u8], layout: Layout, last: &Last, boot_wall_ns: i64) -> Option<Unseen> {
    let records = bytes.chunks_exact(layout.size).filter(|record| kind(record) == Some(BOOT_TIME));
    let mut began: Vec<i64> = records.filter_map(|record| time(record, layout)).collect();
    // Removes this boot's own record, if it is written yet.
    began.pop_if(|at| at.abs_diff(boot_wall_ns) <= NEAR_NS.unsigned_abs());
    let own = last.began_wall_ns.saturating_sub(NEAR_NS)..=last.alive_wall_ns;
    if !began.iter().any(|at| own.contains(at)) {
        return None;
    }
    of(began.into_iter().filter(|at| last.alive_wall_ns < *at && *at < boot_wall_ns), Source::Wtmp)
}

/// Counts boots; `None` if there are none.
fn of(began: impl Iterator<Item = i64>, source: Source) -> Option<Unseen> {
    let (boots, last_wall_ns) =
        began.fold((0_u32, i64::MIN), |(n, last), at| (n.saturating_add(1), last.max(at)));
    (boots > 0).then_some(Unseen { boots, last_wall_ns, source })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{BOOT_TIME, Last, OWN, Source, counted, unseen};
    use crate::source::{
        host::HostRoot,
        logs::boot::{RUN_LVL, tests::file},
    };

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i32 = 3600;

    fn last(began: i32, alive: i32, known: &[&str]) -> Last {
        Last {
            began_wall_ns: i64::from(began) * SECOND,
            alive_wall_ns: i64::from(alive) * SECOND,
            known: known.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn records_between_the_two_boots_are_counted() {
        let up = |hours: i32| (BOOT_TIME, "reboot", hours * HOUR);
        let down = |hours: i32| (RUN_LVL, "shutdown", hours * HOUR);
        let of = |records: &[(i16, &str, i32)]| {
            let last = last(10 * HOUR - 1, 11 * HOUR, &[]);
            let found = counted(&file(OWN, records), OWN, &last, i64::from(20 * HOUR) * SECOND)?;
            assert_eq!(found.source, Source::Wtmp);
            Some((found.boots, found.last_wall_ns / SECOND / i64::from(HOUR)))
        };
        assert_eq!(of(&[up(3), up(10), down(11), up(13), up(15), down(16), up(20)]), Some((2, 15)));
        // This boot's own record is not written yet.
        assert_eq!(of(&[up(3), up(10), up(13)]), Some((1, 13)));
        assert_eq!(of(&[up(3), up(10), down(11), up(20)]), None);
        // The clock was wrong or the file was cut off: the first record may be the known boot's.
        assert_eq!(of(&[up(13), up(20)]), None);
        assert_eq!(of(&[]), None);
    }

    /// A real journal with one boot.
    #[test]
    fn a_journal_knows_boots_by_their_ids() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal");
        let machine = "5d1cb95b000040008000000000000001";
        let boot = "91e974f6-489b-4dbd-8885-6d4e63223662";
        for name in ["compact.journal", "regular.journal"] {
            let root = tempfile::tempdir().expect("a directory");
            let folder = root.path().join("var/log/journal").join(machine);
            fs::create_dir_all(&folder).expect("a folder");
            fs::create_dir(root.path().join("etc")).expect("a folder");
            fs::copy(data.join(name), folder.join("system.journal")).expect("a copy");
            let host = HostRoot::open(root.path()).expect("the root");
            let (before, after) = (1_700_000_000, 1_900_000_000);
            let this = i64::from(after) * SECOND;
            let of = |last: &Last| unseen(&host, last, this).map(|found| (found.boots, found.source));
            // A journal in another folder may be another machine's.
            assert_eq!(of(&last(before, before, &[])), None, "{name}");
            fs::write(root.path().join("etc/machine-id"), format!("{machine}\n")).expect("a file");
            assert_eq!(of(&last(before, before, &[])), Some((1, Source::Journal)), "{name}");
            assert_eq!(of(&last(before, before, &["other", boot])), None, "{name}");
            assert_eq!(of(&last(after, after, &[])), None, "{name}");
            fs::write(root.path().join("etc/machine-id"), "5d1cb95b000040008000000000000002\n")
                .expect("a file");
            assert_eq!(of(&last(before, before, &[])), None, "{name}");
        }
    }
}
