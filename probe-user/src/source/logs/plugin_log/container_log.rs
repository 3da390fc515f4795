//! Reads the end of a container's log, which its runtime writes in the format that CRI prescribes (KEP of
//! kubelet-cri-logging: `TIME STREAM TAG TEXT`, a line each).

use std::path::Path;

use super::{Unreadable, tail::end, time};
use crate::source::host::{HostRoot, ReadError, lines};

/// The kubelet's folder of logs. Each container has a folder in that of its pod, and each start a file
/// `N.log` there.
const FOLDER: &str = "/var/log/pods";

/// A container that has just been started may have said nothing yet.
const FILES: usize = 2;

/// How much of each file's end is read, bytes.
const END_BYTES: u64 = 64 << 10;

/// Reports the last lines of a container's latest starts: the time of each in microseconds since 1970, its
/// text, and the file. `folder`: `NAMESPACE_NAME_UID/CONTAINER`.
pub(crate) fn each(
    root: &HostRoot,
    folder: &str,
    not: &mut Unreadable,
    report: &mut dyn FnMut(u64, &str, &Path),
) {
    let folder = Path::new(FOLDER).join(folder);
    let entries = match root.folder(&folder).and_then(|folder| folder.entries()) {
        Ok(entries) => entries,
        Err(ReadError::Absent) => {
            not.searched.push(folder);
            return;
        }
        Err(why) => {
            not.skipped.add(&folder, why);
            return;
        }
    };
    let names = entries.entries.iter().filter_map(|entry| entry.name.strip_suffix(".log"));
    let mut starts: Vec<u32> = names.filter_map(|number| number.parse().ok()).collect();
    starts.sort_unstable();
    for start in starts.iter().rev().take(FILES) {
        let path = folder.join(format!("{start}.log"));
        match root.plain(&path).and_then(|file| end(file, END_BYTES)) {
            Ok(end) => {
                for line in lines(&end) {
                    if let Some((at, text)) = parse(&line) {
                        report(at, text, &path);
                    }
                }
                not.searched.push(path);
            }
            Err(ReadError::Absent) => {}
            Err(why) => not.skipped.add(&path, why),
        }
    }
}

/// Splits `2026-11-21T08:15:03.98Z stderr F text`; none if the text is empty.
fn parse(line: &str) -> Option<(u64, &str)> {
    let mut parts = line.splitn(4, ' ');
    let at = time::parse(parts.next()?)?;
    parts.next().filter(|stream| matches!(*stream, "stdout" | "stderr"))?;
    parts.next()?;
    let text = parts.next()?;
    (!text.trim().is_empty()).then_some((at, text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{super::Unreadable, HostRoot, each, parse};

    const AT: u64 = 1_795_248_903_988_990;

    #[test]
    fn the_latest_starts_are_read() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("var/log/pods/kube-system_calico-node-x2x7q_u/install-cni");
        fs::create_dir_all(&folder).expect("a folder");
        let line = |text: &str| format!("2026-11-21T08:15:03.988990154Z stderr F {text}\n");
        for (name, text) in
            [("0.log", "first"), ("2.log", "third"), ("10.log", "last"), ("x.log", "no start")]
        {
            fs::write(folder.join(name), line(text)).expect("a file");
        }
        let host = HostRoot::open(root.path()).expect("the root");
        let mut not = Unreadable::default();
        let mut read = Vec::new();
        each(&host, "kube-system_calico-node-x2x7q_u/install-cni", &mut not, &mut |at, text, _file| {
            read.push((at, text.to_owned()));
        });
        assert_eq!(read, [(AT, "last".to_owned()), (AT, "third".to_owned())]);
        assert_eq!(not.searched.len(), 2);

        each(&host, "kube-system_gone-x2x7q_u/install-cni", &mut not, &mut |_, text, _file| {
            panic!("{text}");
        });
        assert!(not.to_string().contains("kube-system_gone-x2x7q_u/install-cni"), "{not}");
    }

    #[test]
    fn a_line_has_a_time_a_stream_and_a_tag() {
        let at = "2026-11-21T08:15:03.988990154Z";
        assert_eq!(parse(&format!("{at} stderr F a  b")), Some((AT, "a  b")));
        assert_eq!(parse(&format!("{at} stdout P part")), Some((AT, "part")));
        for bad in ["", "text", " stderr F text", &format!("{at} stderr F "), &format!("{at} other F text")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line: String) {
            parse(&line);
        }
    }
}
