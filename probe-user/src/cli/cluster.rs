//! `kubectl sandprobe`: the commands of all nodes' agents at once, from a machine that is no node.
//!
//! This program is a plugin of kubectl when it is called `kubectl-sandprobe`. It runs `sandprobe` in the
//! agents' pods by `kubectl exec`, so that it needs no right, token or port that its user does not have.
//!
//! **Invariant:** each node has its deadline, and one that does not answer is named and makes the exit code
//! 2.

mod agents;
mod kubectl;
mod together;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::bail;
use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};
use strum::VariantNames as _;

use self::{
    agents::{Agent, Found},
    kubectl::{Ended, Kubectl},
    together::Answer,
};
use super::{
    CANNOT,
    args::{self, Form},
    output, say, usage,
};
use crate::{duration::duration, model::finding::Kind};

/// The name by which kubectl finds its plugin.
const NAME: &str = "kubectl-sandprobe";

/// Ask the sandprobe agents of a cluster's nodes, through kubectl exec
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    bin_name = "kubectl sandprobe",
    version,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
pub(super) struct Cluster {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    which: Which,

    /// The format of the output; as JSON each line has its node
    #[arg(short, long, value_name = "FORM", default_value = "text", global = true)]
    output: Form,

    /// How long each node may take; a number alone is in seconds, as with kubectl
    #[arg(long, value_name = "TIME", default_value = "30s", global = true, value_parser = patience)]
    timeout: Duration,

    /// How many nodes are asked at once
    #[arg(long, value_name = "COUNT", default_value = "16", global = true,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
}

/// Parses `30s` or `30`, from 1 s to 1 h.
fn patience(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    let patience = seconds.or_else(|_| duration(text))?;
    let may_be = Duration::from_secs(1)..=Duration::from_secs(3600);
    if may_be.contains(&patience) { Ok(patience) } else { Err(format!("{text:?} is not from 1s to 1h")) }
}

const EXIT_CODES: &str = "\
Exit codes:
  0  every node has answered
  1  every node has answered, and on one of them the command ended with 1: leaks found a leak, doctor a limit, or pods
     or boot could not read everything
  2  a node has not answered, or its command failed: a line on standard error says which and why";

/// Which agents are asked.
#[derive(Debug, Args)]
struct Which {
    /// Ask only the agent of this node; may be repeated
    #[arg(long, value_name = "NAME", global = true)]
    node: Vec<String>,

    /// The namespace of the agents' pods
    #[arg(short, long, value_name = "NAME", default_value = "sandprobe", global = true)]
    namespace: String,

    /// The labels of the agents' pods
    #[arg(
        short = 'l',
        long,
        value_name = "LABELS",
        default_value = "app.kubernetes.io/name=sandprobe",
        global = true
    )]
    selector: String,

    /// The agent's container in its pod
    #[arg(short, long, value_name = "NAME", default_value = "sandprobe", global = true)]
    container: String,

    /// The context of the kubeconfig, for kubectl
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,

    /// The kubeconfig, for kubectl
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what is wrong on each node
    Findings {
        /// List what has come right too
        #[arg(long)]
        all: bool,

        /// List only findings of this kind; may be repeated
        #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::VARIANTS))]
        kind: Vec<String>,

        /// List only findings of this pod (NAME or NAMESPACE/NAME); may be repeated
        #[arg(long, value_name = "POD", value_parser = args::pod)]
        pod: Vec<String>,
    },
    /// List the pods of each node and how they started
    Pods {
        /// List only pods whose start took more than 5 s without image pulls and init containers
        #[arg(long)]
        slow: bool,

        /// Instead of pods, list how long each phase of a start takes on each node: p50, p90 and p99
        #[arg(long, conflicts_with = "slow")]
        phases: bool,
    },
    /// Show what each restart of each node cost
    Boot {
        /// Instead, show the restarts of a runtime or of the kubelet alone
        #[arg(long)]
        restarts: bool,
    },
    /// Check each node once for addresses without a sandbox
    Leaks,
    /// Show what sandprobe can see on each node, how, and what to change to see more
    Doctor,
}

impl Command {
    /// Returns the command for one node.
    fn typed(&self, form: Form) -> Vec<String> {
        let mut words = Vec::new();
        match self {
            Self::Findings { all, kind, pod } => {
                words.push("findings".to_owned());
                if *all {
                    words.push("--all".to_owned());
                }
                words.extend(kind.iter().map(|kind| format!("--kind={kind}")));
                words.extend(pod.iter().map(|pod| format!("--pod={pod}")));
            }
            Self::Pods { slow, phases } => {
                words.push("pods".to_owned());
                if *slow {
                    words.push("--slow".to_owned());
                }
                if *phases {
                    words.push("--phases".to_owned());
                }
            }
            Self::Boot { restarts } => {
                words.push("boot".to_owned());
                if *restarts {
                    words.push("--restarts".to_owned());
                }
            }
            Self::Leaks => words.push("leaks".to_owned()),
            Self::Doctor => words.push("doctor".to_owned()),
        }
        if form == Form::Json {
            words.push("--output=json".to_owned());
        }
        words
    }
}

/// Whether the program was called as the plugin: by its name, or by a link of that name.
pub(super) fn is_called(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_stem()).is_some_and(|name| name == NAME)
}

pub(super) fn main(typed: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cluster = match Cluster::try_parse_from(typed) {
        Ok(cluster) => cluster,
        Err(error) => return usage(&error, "kubectl sandprobe"),
    };
    match cluster.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(CANNOT)
        }
    }
}

impl Cluster {
    fn run(&self) -> anyhow::Result<u8> {
        let patience = self.timeout;
        let kubectl = Kubectl {
            context: self.which.context.clone(),
            kubeconfig: self.which.kubeconfig.clone(),
            namespace: self.which.namespace.clone(),
        };
        let Found { agents, strangers } =
            agents::list(&kubectl, &self.which.selector, &self.which.container, patience)?;
        for pod in &strangers {
            say(&format!("{pod}: it has an agent's labels, and no DaemonSet made it: it is not asked"));
        }
        if agents.is_empty() {
            bail!(
                "no DaemonSet's pod in the namespace {} has the labels {} and a container {}: name those of the agents by \
                 --namespace, --selector and --container",
                self.which.namespace,
                self.which.selector,
                self.which.container
            );
        }
        let names = &self.which.node;
        let wanted: Vec<Agent> =
            agents.into_iter().filter(|agent| names.is_empty() || names.contains(&agent.node)).collect();
        let there: BTreeSet<&str> = wanted.iter().map(|agent| agent.node.as_str()).collect();
        let mut code = 0;
        let asked: BTreeSet<&str> = self.which.node.iter().map(String::as_str).collect();
        for absent in asked.difference(&there) {
            say(&format!("{absent}: no agent's pod is there"));
            code = CANNOT;
        }
        let mut answers = Vec::new();
        for (node, ended) in self.ask(&kubectl, wanted, patience) {
            match ended {
                Ok(Ended { stdout, stderr, code: status }) => {
                    let has_failed = status >= CANNOT;
                    if has_failed && stderr.trim().is_empty() {
                        say(&format!("{node}: its command ended with exit code {status}"));
                    }
                    for line in stderr.lines().filter(|line| !line.trim().is_empty()) {
                        say(&format!("{node}: {}", line.strip_prefix("sandprobe: ").unwrap_or(line)));
                    }
                    code = code.max(status.min(CANNOT));
                    // A command that failed and printed nothing has not answered.
                    if !(has_failed && stdout.is_empty()) {
                        answers.push(Answer { node, text: stdout });
                    }
                }
                Err(why) => {
                    say(&format!("{node}: {why}"));
                    code = CANNOT;
                }
            }
        }
        let mut bytes = match self.output {
            Form::Text => together::text(&answers).into_bytes(),
            Form::Json => {
                let (lines, unread) = together::json(&answers);
                for node in unread {
                    say(&format!("{node}: its answer is not JSON"));
                    code = CANNOT;
                }
                lines.into_bytes()
            }
        };
        output::write(&mut bytes)?;
        Ok(code)
    }

    /// Returns what each node answers, or why it does not, in the order of the nodes' names.
    fn ask(
        &self,
        kubectl: &Kubectl,
        agents: Vec<Agent>,
        patience: Duration,
    ) -> Vec<(String, Result<Ended, String>)> {
        let words = self.command.typed(self.output);
        let workers = usize::from(self.parallel).min(agents.len());
        let queue = Mutex::new(agents.into_iter());
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        // No holder of a lock panics.
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(Agent { node, pod }) = next else { return };
                        let ended =
                            pod.and_then(|pod| kubectl.exec(&pod, &self.which.container, &words, patience));
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((node, ended));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by(|(one, _), (other, _)| one.cmp(other));
        done
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::{CommandFactory as _, Parser as _};

    use super::{Cluster, Form, is_called};

    #[test]
    fn the_commands_are_consistent() {
        Cluster::command().debug_assert();
    }

    #[test]
    fn the_time_of_a_node_is_as_kubectl_takes_it() {
        let timeout = |word: &str| {
            let words = ["kubectl-sandprobe", "--timeout", word, "leaks"];
            Cluster::try_parse_from(words).map(|it| it.timeout.as_millis()).map_err(|error| error.to_string())
        };
        assert_eq!(
            ["3", "3s", "2m", "1500ms"].map(|word| timeout(word).ok()),
            [3000, 3000, 120_000, 1500].map(Some)
        );
        for word in ["0", "500ms", "2h", "3 s", "soon", ""] {
            assert!(timeout(word).is_err_and(|why| why.contains("--timeout")), "{word}");
        }
    }

    #[test]
    fn the_name_of_the_program_decides() {
        for name in ["kubectl-sandprobe", "/usr/local/bin/kubectl-sandprobe", "./kubectl-sandprobe.exe"] {
            assert!(is_called(Some(OsStr::new(name))), "{name}");
        }
        for name in ["sandprobe", "/kubectl-sandprobe/sandprobe", "kubectl", ""] {
            assert!(!is_called(Some(OsStr::new(name))), "{name}");
        }
        assert!(!is_called(None));
    }

    #[test]
    fn flags_reach_the_command_of_each_node() {
        let typed = |words: &str, form| {
            let words = ["kubectl-sandprobe"].into_iter().chain(words.split(' '));
            Cluster::try_parse_from(words).expect("it is right").command.typed(form).join(" ")
        };
        assert_eq!(typed("findings", Form::Text), "findings");
        assert_eq!(
            typed("findings --all --kind cni_slow --kind cni_queue --pod shop/web-0", Form::Json),
            "findings --all --kind=cni_slow --kind=cni_queue --pod=shop/web-0 --output=json"
        );
        assert_eq!(typed("pods --slow --context c -n ops", Form::Text), "pods --slow");
        assert_eq!(typed("pods --phases", Form::Text), "pods --phases");
        assert_eq!(typed("boot --restarts", Form::Text), "boot --restarts");
        for command in ["boot", "leaks", "doctor"] {
            assert_eq!(typed(command, Form::Json), format!("{command} --output=json"));
        }
    }
}
