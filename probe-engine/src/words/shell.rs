//! Commands for a shell of root on the node, for whoever reads them to run, never run here. Lines that begin with `#` are
//! comments.
//!
//! **Invariant:** text from the node gets into a command only between quotes, and not at all if a terminal could act
//! upon it. Nothing is deleted by a command that has not checked.

use probe_common::runtime;

use crate::model::id::ContainerId;

/// Instead of a command.
pub(crate) const UNPRINTABLE: &str =
    "# its path has characters that could act on a terminal: no command is given for it";

/// `text` as one word of a shell, whatever is in it; none if a terminal could act upon it.
#[must_use]
pub(crate) fn quoted(text: &str) -> Option<String> {
    // What is no printable ASCII could look like something else to who copies it.
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return None;
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[must_use]
pub(crate) fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// crictl as it asks each of the node's runtimes: its own default is none of them on k3s, for instance. Where no socket is
/// known, crictl is to know.
pub(crate) fn crictl(runtimes: &[String]) -> impl Iterator<Item = String> {
    let at = |socket: &String| {
        // What cannot be asked by name must not pass for an answer.
        quoted(&format!("unix://{socket}"))
            .map_or_else(|| "false".to_owned(), |socket| format!("crictl --runtime-endpoint {socket}"))
    };
    let default = runtimes.is_empty().then(|| "crictl".to_owned());
    default.into_iter().chain(runtimes.iter().map(at).collect::<Vec<_>>())
}

/// Each of these asked for of each runtime.
#[must_use]
pub(crate) fn asked(runtimes: &[String], verb: &str, ids: &[ContainerId]) -> Vec<String> {
    let of =
        |id: &ContainerId| crictl(runtimes).map(|crictl| format!("{crictl} {verb} {id}")).collect::<Vec<_>>();
    ids.iter().flat_map(of).collect()
}

/// Each of these sandboxes is stopped if no container of it runs: the runtime kills containers with their sandbox, without the
/// grace that the kubelet gives them.
#[must_use]
pub(crate) fn stop_if_nothing_runs(runtimes: &[String], ids: &[ContainerId]) -> Vec<String> {
    let of = |id: &ContainerId| {
        let each = crictl(runtimes).map(|crictl| {
            format!("running=$({crictl} ps -q --pod {id}) && [ -z \"$running\" ] && {crictl} stopp {id}")
        });
        each.collect::<Vec<_>>()
    };
    ids.iter().flat_map(of).collect()
}

/// Where the node's runtimes write what CNI plugins said.
#[must_use]
pub(crate) fn cni_in_journal() -> Vec<String> {
    vec![
        "# The plugin's own words are in the runtime's log:".to_owned(),
        format!("journalctl {}--since -15min | grep -i cni", units()),
    ]
}

/// Where the kubelet writes what it waits for.
#[must_use]
pub(crate) fn kubelet_in_journal() -> Vec<String> {
    let units = runtime::of_distributions(|row| row.units).map(|unit| format!("-u {unit} "));
    vec![
        "# The kubelet says what it waits for:".to_owned(),
        format!("journalctl -u kubelet {}--since -15min", units.collect::<String>()),
    ]
}

/// Where the node's runtimes and the kubelet write why they replace sandboxes.
#[must_use]
pub(crate) fn sandboxes_in_journal() -> String {
    format!("journalctl {}-u kubelet --since -30min | grep -i sandbox", units())
}

/// The units of all runtimes and distributions, as journalctl takes them.
fn units() -> String {
    let units = runtime::of_runtimes(|row| row.units).chain(runtime::of_distributions(|row| row.units));
    units.map(|unit| format!("-u {unit} ")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn a_shell_takes_it_as_one_word() {
        for text in ["", "a", "a b", "$(reboot)", "it's", "`x`", "a\\", "'; rm -rf /; '", "*", "~", "-n"] {
            let word = quoted(text).expect("printable");
            let shell = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output();
            assert_eq!(String::from_utf8(shell.expect("a shell").stdout).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_no_word() {
        for text in ["\u{1b}[2J", "a\nb", "\u{202e}", "é", "\u{7f}"] {
            assert_eq!(quoted(text), None, "{text:?}");
        }
    }
}
