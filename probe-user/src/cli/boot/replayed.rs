//! Boots from recordings, on any machine.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::anyhow;

use super::Row;
use crate::{
    cli::{
        replay::{replayed, unreadable},
        say,
    },
    model::recovery::{Alive, BootRead, PreviousBoot},
    replay::Replayed,
};

/// A row for each file; false if a recording was cut off. A boot that is recorded twice would count twice.
pub(super) fn rows(files: &[PathBuf]) -> anyhow::Result<(Vec<Row>, bool)> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut is_whole, mut last) = (true, None);
    let mut seen = BTreeMap::new();
    for file in files {
        let Replayed { header, mut engine, until, cut_off, .. } = replayed(file)?;
        // Nodes that share a kernel share its boot id.
        if let Some(other) = seen.insert((header.node.clone(), header.boot_id.clone()), file) {
            return Err(anyhow!(
                "{} and {} are of the same boot ({}): give one of them",
                other.display(),
                file.display(),
                header.boot_id
            ));
        }
        if let Some(error) = cut_off {
            say(&unreadable(file, &error).to_string());
            is_whole = false;
        }
        engine.advance(until);
        let mut recovery = engine.recovery().clone();
        let boot = recovery.boot.get_or_insert_with(|| BootRead {
            boot_id: header.boot_id.clone(),
            kernel: header.kernel.clone(),
            boot_wall_ns: header.boot_wall_ns,
            ..BootRead::default()
        });
        // The history on the node is better than the recording before it.
        if boot.before == PreviousBoot::default() {
            boot.before = PreviousBoot::of(rows.last().map(|row| &row.recovery), last.take());
        }
        last = Some(Alive {
            boot_id: boot.boot_id.clone(),
            wall_ns: boot.boot_wall_ns.saturating_add_unsigned(until.0),
            running: engine.running_pods(),
        });
        rows.push(Row::new(header.node, recovery, until));
    }
    Ok((rows, is_whole))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::{super::table, rows};

    fn restart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/boots/restart.jsonl")
    }

    /// The recording of a restart of a VM with systemd, containerd and ten service pods, without the facts that do
    /// not matter for a recovery. The agent's history has the same times.
    #[test]
    fn a_recorded_restart_gives_its_table_on_any_machine() {
        let (rows, is_whole) = rows(&[restart()]).expect("a recording");
        assert!(is_whole);
        assert_eq!(
            table::text(&rows, None, false),
            "\
ms from the order of the restart (* from the kernel's start, ~ not exact), and the periods between, s
BOOT (UTC)           KERNEL          KUBELET  STATIC POD  FIRST SERVICE  LAST SERVICE  1      2     3      4      WHOLE
2026-11-21 23:45:00  6.1.0-56-amd64  45293    53734       77794          137551        45.29  8.44  24.06  59.76  137.55

1 of 1 boot met the target of 300.000 s, 0 missed it

2026-11-21 23:45:00 edge-1 920b4a12-4edc-4080-ae94-e42e1095f806
  ordered by \"systemctl --no-block reboot\" 29.111 s before the kernel's start
  CNI: ADD failed 4 times before the first success (flannel): 10.969 s lost
  all 10 service pods of before are back
  with containerd, kubelet
  the agent began to look 13.382 s after the boot: what was before is known from files, if at all
"
        );
    }

    #[test]
    fn a_boot_is_not_counted_twice() {
        let dir = tempfile::tempdir().expect("a folder");
        let [copy, other] = ["copy", "other"].map(|name| dir.path().join(name));
        let recording = fs::read_to_string(restart()).expect("a recording");
        fs::write(&copy, &recording).expect("a file");
        // Of another node on the same kernel.
        let node = "\"node\":\"edge-";
        fs::write(&other, recording.replacen(&format!("{node}1"), &format!("{node}2"), 1)).expect("a file");
        for again in [&restart(), &copy] {
            let why = rows(&[restart(), other.clone(), again.clone()]).err().expect("it is given twice");
            let said = format!(
                "{} and {} are of the same boot (920b4a12-4edc-4080-ae94-e42e1095f806): give one of them",
                restart().display(),
                again.display()
            );
            assert_eq!(why.to_string(), said);
        }
        assert_eq!(rows(&[restart(), other]).expect("two boots").0.len(), 2);
    }
}
