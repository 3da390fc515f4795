//! Boots from recordings, on any machine.

use std::{cmp::Ordering, collections::BTreeMap, path::PathBuf};

use anyhow::anyhow;

use super::Row;
use crate::{
    cli::{
        input::refuse_twice,
        replay::{replayed, unreadable},
        say,
    },
    model::recovery::{Alive, BootRead, PreviousBoot},
    replay::Replayed,
};

/// Returns a row for each file, and false if a recording was cut off. Refuses two recordings of one boot,
/// which would count twice.
pub(super) fn rows(files: &[PathBuf]) -> anyhow::Result<(Vec<Row>, bool)> {
    refuse_twice(files)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut is_whole = true;
    let mut seen = BTreeMap::new();
    // The last row of each node, and the last sign of life of that boot.
    let mut last: BTreeMap<String, (usize, Alive)> = BTreeMap::new();
    for file in files {
        let Replayed { header, mut engine, until, cut_off, .. } = replayed(file)?;
        // Nodes that share a kernel share its boot id.
        if let Some((other, ended)) =
            seen.insert((header.node.clone(), header.boot_id.clone()), (file, until))
        {
            let later = match until.cmp(&ended) {
                Ordering::Less => Some(other),
                Ordering::Equal => None,
                Ordering::Greater => Some(file),
            };
            let give = match later {
                Some(file) => format!(
                    "{}, the later one, which goes on with the state of the other if the state directory was kept",
                    file.display()
                ),
                None => "one of them".to_owned(),
            };
            return Err(anyhow!(
                "{} and {} are of the same boot ({}): give {give}",
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
        // The history that the node keeps is better than its previous recording.
        if boot.before == PreviousBoot::default() {
            let (row, alive) = last.remove(&header.node).unzip();
            let row = row.and_then(|row| rows.get(row));
            boot.before = PreviousBoot::of(row.map(|row| &row.recovery), alive);
        }
        let alive = Alive {
            boot_id: boot.boot_id.clone(),
            wall_ns: boot.boot_wall_ns.saturating_add_unsigned(until.0),
            running: engine.running_pods(),
        };
        last.insert(header.node.clone(), (rows.len(), alive));
        rows.push(Row { starts: engine.starts(), ..Row::new(header.node, recovery, until) });
    }
    Ok((rows, is_whole))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::{
        super::{boots, table},
        PreviousBoot, rows,
    };

    fn recording(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/boots").join(name)
    }

    fn restart() -> PathBuf {
        recording("restart.jsonl")
    }

    /// Writes the recording to the file `to`, as one of another node.
    fn of_other_node(recording: &Path, to: &Path) {
        let whole = fs::read_to_string(recording).expect("a recording");
        let node = "\"node\":\"edge-";
        fs::write(to, whole.replacen(&format!("{node}1"), &format!("{node}2"), 1)).expect("a file");
    }

    /// The recording of a restart of a VM with systemd, containerd and ten service pods, without the facts
    /// that do not matter for a recovery. The agent's history has the same times.
    #[test]
    fn a_recorded_restart_gives_its_table_on_any_machine() {
        let (rows, is_whole) = rows(&[restart()]).expect("a recording");
        assert!(is_whole);
        assert_eq!(
            table::text(&boots(&rows), None, false),
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
        let [copy, earlier, other] = ["copy", "earlier", "other"].map(|name| dir.path().join(name));
        let recording = fs::read_to_string(restart()).expect("a recording");
        fs::write(&copy, &recording).expect("a file");
        // The agent was started again meanwhile.
        let half = recording.split_inclusive('\n').take(recording.lines().count() / 2);
        fs::write(&earlier, half.collect::<String>()).expect("a file");
        // Another node on the same kernel.
        of_other_node(&restart(), &other);
        let refused = |files: &[&PathBuf]| {
            let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
            rows(&files).err().expect("one boot twice").to_string()
        };
        let of_one = |one: &Path, other: &Path, give: &str| {
            format!(
                "{} and {} are of the same boot (920b4a12-4edc-4080-ae94-e42e1095f806): give {give}",
                one.display(),
                other.display()
            )
        };
        let later = format!(
            "{}, the later one, which goes on with the state of the other if the state directory was kept",
            restart().display()
        );
        assert_eq!(refused(&[&restart(), &other, &copy]), of_one(&restart(), &copy, "one of them"));
        assert_eq!(refused(&[&restart(), &earlier]), of_one(&restart(), &earlier, &later));
        assert_eq!(refused(&[&earlier, &restart()]), of_one(&earlier, &restart(), &later));
        assert_eq!(rows(&[restart(), other]).expect("two boots").0.len(), 2);
    }

    #[test]
    fn a_file_that_is_given_twice_is_refused_before_any_is_read() {
        for file in ["-", "/absent"] {
            let files = [PathBuf::from("/nothing"), PathBuf::from(file), PathBuf::from(file)];
            let why = rows(&files).err().expect("it is given twice").to_string();
            assert_eq!(why, format!("{file} is given twice"));
        }
    }

    /// The recording of the later boot has nothing of the one before.
    #[test]
    fn the_boot_before_is_one_of_the_same_node() {
        let dir = tempfile::tempdir().expect("a folder");
        let other = dir.path().join("other");
        let later = recording("runtime-restart.jsonl");
        of_other_node(&later, &other);
        let (rows, _) = rows(&[restart(), other, later]).expect("three boots");
        let before = rows.iter().map(|row| {
            let boot = row.recovery.boot.as_ref().expect("what it is");
            (row.node.as_str(), &boot.boot_id, &boot.before)
        });
        let [(_, first, _), (node, _, unknown), (_, _, known)] =
            before.collect::<Vec<_>>().try_into().expect("three boots");
        assert_eq!((node, unknown), ("edge-2", &PreviousBoot::default()));
        assert_eq!(known.boot_id.as_ref(), Some(first));
    }
}
