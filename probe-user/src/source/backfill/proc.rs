//! Parses the files of `/proc/PID` (proc(5)).
//!
//! procfs-core is not used: it panics at a broken `stat`, refuses a `status` whose name is not UTF-8, and
//! parses all fifty lines of `status` where two are needed.

use std::iter;

use crate::{
    model::{fact::CniVariables, id::TICK},
    source::host::lines,
};

/// The needed fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) comm: String,
    pub(super) state: char,
    pub(super) parent: u32,
    /// The start time: boot time in ns, rounded down to a clock tick.
    pub(super) start: u64,
}

impl Stat {
    /// Returns whether it is a zombie, which has only its exit status left, or gone.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Parses `PID (COMM) STATE PPID …`. The start time is field 22.
pub(super) fn stat(bytes: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(bytes);
    // The name may hold spaces and parentheses; no later field does.
    let (before, after) = text.rsplit_once(") ")?;
    let (_, comm) = before.split_once(" (")?;
    let mut fields = after.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let ticks: u64 = fields.nth(17)?.parse().ok()?;
    Some(Stat { comm: comm.to_owned(), state, parent, start: ticks.checked_mul(TICK)? })
}

/// Returns the pid in its own pid namespace: the last of `NSpid:` in `/proc/PID/status`.
pub(super) fn ns_pid(status: &[u8]) -> Option<u32> {
    lines(status).find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok())
}

/// Returns whether the process is root's, and not by setuid, as far as `/proc/PID/status` says. The ids are
/// those of this process's user namespace; hooks can only be attached in the initial one.
pub(super) fn is_root(status: &[u8]) -> bool {
    let ids = lines(status).find_map(|line| Some(line.strip_prefix("Uid:")?.to_owned()));
    ids.is_none_or(|ids| ids.split_whitespace().take(2).eq(["0", "0"]))
}

/// Splits `/proc/PID/cmdline`, in which each argument ends with a NUL. The last one may be cut off.
pub(super) fn arguments(cmdline: &[u8]) -> Vec<String> {
    if cmdline.is_empty() {
        return Vec::new();
    }
    let whole = cmdline.strip_suffix(&[0]).unwrap_or(cmdline);
    whole.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// Returns the inode in a link of `/proc/PID/ns`: `net:[4026531840]`.
pub(super) fn namespace(kind: &str, link: &str) -> Option<u32> {
    link.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// Returns a call's variables in `/proc/PID/environ`, if it is a CNI plugin's. Nothing else of it is kept.
pub(super) fn cni(environ: &[u8]) -> Option<CniVariables> {
    let mut found = CniVariables::default();
    let mut command = None;
    for variable in environ.split(|byte| *byte == 0) {
        if !variable.starts_with(b"CNI_") && !variable.starts_with(b"TRACE") {
            continue;
        }
        let text = String::from_utf8_lossy(variable);
        let Some((name, value)) = text.split_once('=') else { continue };
        let place = match name {
            "CNI_COMMAND" => &mut command,
            "CNI_CONTAINERID" => &mut found.container_id,
            "CNI_NETNS" => &mut found.netns,
            "CNI_IFNAME" => &mut found.ifname,
            "CNI_ARGS" => &mut found.args,
            "CNI_PATH" => &mut found.path,
            "TRACEPARENT" => &mut found.traceparent,
            "TRACESTATE" => &mut found.tracestate,
            _ => continue,
        };
        // The first one wins, as with `getenv`.
        place.get_or_insert_with(|| value.to_owned());
    }
    found.command = command?;
    Some(found)
}

/// Returns the value of an option in a command line.
pub(super) fn option<'a>(arguments: &'a [String], names: &[&str]) -> Option<&'a str> {
    iter::zip(arguments, arguments.iter().skip(1))
        .find(|(name, _)| names.contains(&name.as_str()))
        .map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Stat, arguments, cni, is_root, namespace, ns_pid, option, stat};

    #[test]
    fn a_name_may_hold_anything() {
        let text = b"1234 (a) S (b c)) S 77 1234 1234 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 764085 9 10\n";
        let start = 7_640_850_000_000;
        assert_eq!(stat(text), Some(Stat { comm: "a) S (b c)".to_owned(), state: 'S', parent: 77, start }));
        assert_eq!(stat(b"1234 (sh) S 77"), None);
        assert_eq!(stat(b""), None);
    }

    #[test]
    fn its_own_pid_is_the_innermost() {
        assert_eq!(ns_pid(b"Name:\tpause\nNSpid:\t19622\t7\t1\n"), Some(1));
        assert_eq!(ns_pid(b"Name:\tsh\nNSpid:\t300\n"), Some(300));
        assert_eq!(ns_pid(b"Name:\tsh\n"), None);
    }

    #[test]
    fn root_is_who_was_not_only_lent_its_rights() {
        assert!(is_root(b"Name:\tcontainerd\nUid:\t0\t0\t0\t0\nGid:\t5\t5\t5\t5\n"));
        for other in ["65534\t65534\t65534\t65534", "1000\t0\t0\t0", "0\t1000\t0\t0", "", "0"] {
            assert!(!is_root(format!("Name:\tcontainerd\nUid:\t{other}\n").as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn arguments_are_split_at_nul() {
        assert_eq!(arguments(b"/pause\0"), ["/pause"]);
        let shim = arguments(b"shim\0-namespace\0k8s.io\0-id\0\0-x");
        assert_eq!(shim, ["shim", "-namespace", "k8s.io", "-id", "", "-x"]);
        assert_eq!(option(&shim, &["-namespace"]), Some("k8s.io"));
        assert_eq!(option(&shim, &["-x"]), None);
        assert!(arguments(b"").is_empty());
    }

    #[test]
    fn only_the_variables_of_cni_are_kept() {
        let found =
            cni(b"SECRET=1\0CNI_NETNS=\0CNI_COMMAND=DEL\0CNI_OTHER=x\0CNI_IFNAME=eth0\0TRACEPARENT=x\0")
                .expect("a call");
        assert_eq!((found.command.as_str(), found.netns.as_deref()), ("DEL", Some("")));
        assert_eq!((found.ifname.as_deref(), found.container_id), (Some("eth0"), None));
        assert_eq!(cni(b"CNI_PATH=/opt/cni/bin\0"), None);
    }

    #[test]
    fn a_namespace_is_told_by_its_inode() {
        assert_eq!(namespace("net", "net:[4026531840]"), Some(4_026_531_840));
        assert_eq!(namespace("net", "mnt:[4026531840]"), None);
        assert_eq!(namespace("net", "net:[]"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, text in "[0-9 ()SR]{0,120}") {
            stat(&bytes);
            stat(text.as_bytes());
            ns_pid(&bytes);
            arguments(&bytes);
            cni(&bytes);
            namespace("net", &String::from_utf8_lossy(&bytes));
        }
    }
}
