//! Runs kubectl, for a limited time.

use std::{path::PathBuf, process::Command};

use crate::cli::child::{self, Limits, Output};

/// Its name in PATH and in messages.
const KUBECTL: &str = "kubectl";
/// What kubectl prints if the command in the pod ended with a code other than 0. Without this line, such a
/// code is kubectl's own.
const TERMINATED: &str = "command terminated with exit code ";

/// kubectl's own flags.
pub(super) struct Kubectl {
    pub(super) context: Option<String>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) namespace: String,
}

/// How the command of a pod has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) stdout: String,
    /// Without kubectl's own line about the code.
    pub(super) stderr: String,
    pub(super) code: u8,
}

impl Kubectl {
    /// The output of a command of kubectl itself.
    pub(super) fn output(&self, words: &[&str], limits: Limits<'_>) -> Result<String, String> {
        let mut command = self.command();
        command.args(words);
        let Output { stdout, stderr, code } = child::run(command, KUBECTL, limits)?;
        if code == Some(0) { Ok(stdout) } else { Err(failure(&stderr, code)) }
    }

    /// Runs `sandprobe` in a pod, where the image has it.
    pub(super) fn exec(
        &self,
        pod: &str,
        container: &str,
        words: &[String],
        limits: Limits<'_>,
    ) -> Result<Ended, String> {
        let mut command = self.command();
        command.args(["exec", pod, "-c", container, "--", "/sandprobe"]).args(words);
        let Output { stdout, stderr, code } = child::run(command, KUBECTL, limits)?;
        ended(stdout, &stderr, code)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(KUBECTL);
        if let Some(context) = &self.context {
            command.arg("--context").arg(context);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.arg("--namespace").arg(&self.namespace);
        command
    }
}

fn ended(stdout: String, stderr: &str, code: Option<i32>) -> Result<Ended, String> {
    let remote = stderr.lines().find_map(|line| line.strip_prefix(TERMINATED)?.trim().parse::<u8>().ok());
    let code = match (code, remote) {
        (Some(0), _) => 0,
        // 126 and 127: the command could not be run.
        (Some(_), Some(remote)) if remote < 126 => remote,
        (code, _) => return Err(failure(stderr, code)),
    };
    let said = stderr.lines().filter(|line| !line.starts_with(TERMINATED));
    Ok(Ended { stdout, stderr: said.collect::<Vec<_>>().join("\n"), code })
}

/// Returns why kubectl failed: its last line, which names the error. The line that the command ended does not
/// say why, so it is returned only if there is no other.
fn failure(stderr: &str, code: Option<i32>) -> String {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.clone().rfind(|line| !line.starts_with(TERMINATED)).or_else(|| lines.next_back());
    match (said, code) {
        (Some(line), _) => line.to_owned(),
        (None, Some(code)) => format!("kubectl ended with exit code {code}"),
        (None, None) => "kubectl was killed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, ended};

    #[test]
    fn the_code_of_the_command_is_told_from_kubectl_s_own() {
        let of = |stderr: &str, code| ended("out\n".to_owned(), stderr, code);
        let told =
            |stderr: &str, code| Ok(Ended { stdout: "out\n".to_owned(), stderr: stderr.to_owned(), code });
        assert_eq!(of("", Some(0)), told("", 0));
        assert_eq!(of("sandprobe: x\n", Some(0)), told("sandprobe: x", 0));
        assert_eq!(of("a\ncommand terminated with exit code 1\n", Some(1)), told("a", 1));
        let why = |stderr: &str, code| of(stderr, code).expect_err("it failed");
        assert_eq!(
            why("Error from server (NotFound): pods \"x\" not found\n", Some(1)),
            "Error from server (NotFound): pods \"x\" not found"
        );
        assert_eq!(
            why("exec failed: no sandprobe\ncommand terminated with exit code 127\n", Some(127)),
            "exec failed: no sandprobe"
        );
        assert_eq!(
            why("command terminated with exit code 127\n", Some(127)),
            "command terminated with exit code 127"
        );
        assert_eq!(why("", Some(1)), "kubectl ended with exit code 1");
        assert_eq!(why("\n", None), "kubectl was killed");
    }
}
