//! Commands for a root shell on the node. They are shown to the user and never run here. Lines that begin
//! with `#` are comments.
//!
//! **Invariant:** text from the node gets into a command only between quotes, and not at all if a terminal
//! could act on it. No command deletes anything that it has not checked.

use probe_common::runtime::{self, DISTRIBUTIONS, RUNTIMES};

use crate::model::id::ContainerId;

/// The text in place of a command.
pub(crate) const UNPRINTABLE: &str =
    "# its path has characters that could act on a terminal: no command is given for it";

/// Quotes `text` as one shell word, whatever is in it; none if a terminal could act on it.
#[must_use]
pub fn quoted(text: &str) -> Option<String> {
    // Text that is not printable ASCII could look like something else to the user who copies it.
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return None;
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[must_use]
pub(crate) fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Returns the crictl command for each of the node's runtimes. crictl's own default is not always one of them
/// (on k3s, for instance), and is used only if no socket is known.
pub(crate) fn crictl(runtimes: &[String]) -> impl Iterator<Item = String> {
    let mut commands = Vec::with_capacity(runtimes.len().max(1));
    if runtimes.is_empty() {
        commands.push("crictl".to_owned());
    }
    for socket in runtimes {
        commands.push(match quoted(&format!("unix://{socket}")) {
            Some(socket) => format!("crictl --runtime-endpoint {socket}"),
            // A socket that cannot be named must not count as an answer.
            None => "false".to_owned(),
        });
    }
    commands.into_iter()
}

/// Asks each runtime about each of these ids.
#[must_use]
pub(crate) fn asked(runtimes: &[String], verb: &str, ids: &[ContainerId]) -> Vec<String> {
    let mut lines = Vec::new();
    for id in ids {
        lines.extend(crictl(runtimes).map(|crictl| format!("{crictl} {verb} {id}")));
    }
    lines
}

/// Stops each of these sandboxes if none of its containers runs: the runtime kills containers with their
/// sandbox, without the grace period that the kubelet gives them.
#[must_use]
pub(crate) fn stop_if_nothing_runs(runtimes: &[String], ids: &[ContainerId]) -> Vec<String> {
    let mut lines = Vec::new();
    for id in ids {
        lines.extend(crictl(runtimes).map(|crictl| {
            format!("running=$({crictl} ps -q --pod {id}) && [ -z \"$running\" ] && {crictl} stopp {id}")
        }));
    }
    lines
}

/// Returns commands that look for a plugin's executable in the folders in which the runtime looks.
pub(crate) fn look_for_plugin(plugin: Option<&str>, folders: &[String]) -> Vec<String> {
    if folders.is_empty() {
        return lines(&[
            "# The message of the runtime names the folders in which it looked for the plugin's executable. The",
            "# installation of the network plugin brings it.",
        ]);
    }
    let folders: Option<Vec<String>> = folders.iter().map(|folder| quoted(folder)).collect();
    let (Some(plugin), Some(folders)) = (plugin.and_then(quoted), folders) else {
        return lines(&[UNPRINTABLE]);
    };
    let mut all = lines(&[
        "# The runtime looks in these folders. This prints nothing if the plugin's executable is missing there. The",
        "# installation of the network plugin brings it:",
    ]);
    all.push(format!("find -L {} -maxdepth 1 -type f -name {plugin}", folders.join(" ")));
    all
}

/// Returns commands that look at the configuration, and at the pods that write it.
pub(crate) fn look_for_configuration(file: Option<&str>, folder: Option<&str>) -> Vec<String> {
    let mut all = Vec::new();
    for (path, what) in [(folder, "ls -l --"), (file, "jq .")] {
        match path.map(quoted) {
            Some(Some(path)) => all.push(format!("{what} {path}")),
            Some(None) => all.extend(lines(&[UNPRINTABLE])),
            None => {}
        }
    }
    all.extend(lines(&[
        "# The network plugin's own pod writes this configuration when it starts. Look at its log, and delete that pod:",
        "# its DaemonSet makes it again. Where kubectl works, with the node's name in NODE_NAME:",
        "kubectl get pods -A -o wide --field-selector \"spec.nodeName=$NODE_NAME\"",
    ]));
    all
}

/// Returns the command that shows what the runtimes and the kubelet said lately.
pub(crate) fn journal() -> String {
    format!("journalctl {}-u kubelet --since -15min", units())
}

/// Returns the command that shows the messages of CNI plugins in the runtimes' logs.
#[must_use]
pub(crate) fn cni_in_journal() -> Vec<String> {
    vec![
        "# The plugin's own words are in the runtime's log:".to_owned(),
        format!("journalctl {}--since -15min | grep -i cni", units()),
    ]
}

/// Returns the command that shows what the kubelet waits for.
#[must_use]
pub(crate) fn kubelet_in_journal() -> Vec<String> {
    let units = runtime::of_distributions(|row| row.units).map(|unit| format!("-u {unit} "));
    vec![
        "# The kubelet says what it waits for:".to_owned(),
        format!("journalctl -u kubelet {}--since -15min", units.collect::<String>()),
    ]
}

/// Returns the command that shows what the runtimes and the kubelet said with these words, which are a
/// pattern between quotes.
#[must_use]
pub(crate) fn in_journal(words: &str) -> String {
    format!("journalctl {}-u kubelet --since -30min | grep -i {words}", units())
}

/// Returns the commands that show why a runtime or a kubelet did not start, and start it. `daemon`: the name
/// of its program, `start`: when to start it.
#[must_use]
pub(crate) fn unit_commands(daemon: &str, start: &str) -> Vec<String> {
    let unit = unit_of(daemon);
    vec![
        "# What it said last, and what became of it:".to_owned(),
        format!("journalctl -u {unit} -n 50 --no-pager"),
        format!("# {start}"),
        format!("systemctl reset-failed {unit}; systemctl restart {unit}"),
    ]
}

/// Prints what systemd ends with a daemon's unit.
pub(crate) fn in_unit(daemon: &str) -> String {
    format!("systemctl show -p KillMode -p Delegate {}", unit_of(daemon))
}

/// Returns the most likely unit of a runtime or a kubelet. `daemon`: the name of its program.
#[must_use]
fn unit_of(daemon: &str) -> &str {
    let of_distribution = DISTRIBUTIONS.iter().find(|row| row.kubelets.contains(&daemon));
    let of_runtime = RUNTIMES.iter().find(|row| row.programs().any(|program| program == daemon));
    let units = of_distribution.map(|row| row.units).or(of_runtime.map(|row| row.units)).unwrap_or_default();
    // A unit has the name of its program, the beginning of it (docker, cri-docker, k3s) or more (MicroK8s).
    let own = units.iter().filter(|unit| daemon.starts_with(**unit) || unit.ends_with(daemon));
    let own = own.max_by_key(|unit| unit.len());
    own.copied().or(units.first().copied()).unwrap_or(daemon)
}

/// Returns the units of all runtimes and distributions as options of journalctl.
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
