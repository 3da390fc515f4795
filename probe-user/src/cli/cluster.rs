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
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    thread,
    time::Duration,
};

use anyhow::bail;
use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};
use strum::VariantNames as _;

use self::{
    agents::{Agent, Found},
    kubectl::{Ended, Kubectl},
    together::{Answer, Note},
};
use super::{
    CANNOT,
    args::{self, Form},
    child::Limits,
    mcp::{self, Nodes, Reply, tool::Call},
    output, say, usage,
};
use crate::{duration::duration, model::finding::Kind};

/// The name by which kubectl finds its plugin.
const NAME: &str = "kubectl-sandprobe";

/// The longest output of a node that is read, bytes.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

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

/// A command for the nodes.
struct Asked<'a> {
    words: &'a [String],
    form: Form,
    /// The nodes to ask; all if empty.
    nodes: &'a [String],
    /// Whether each node would answer the same.
    is_one_enough: bool,
    limits: Limits<'a>,
}

/// What the nodes have printed.
struct Gathered {
    text: String,
    notes: Vec<Note>,
    /// The exit code of the plugin.
    code: u8,
    has_answer: bool,
}

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
        /// Also list closed findings
        #[arg(long)]
        all: bool,

        /// List incidents instead: findings of one cause as one row or object
        #[arg(long)]
        incidents: bool,

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
    /// Answer an AI agent about all nodes, as a server of the Model Context Protocol on standard input and
    /// output; read-only
    Mcp,
}

impl Command {
    /// Returns the command for one node.
    fn typed(&self, form: Form) -> Vec<String> {
        let mut words = Vec::new();
        match self {
            Self::Findings { all, incidents, kind, pod } => {
                words.push("findings".to_owned());
                if *incidents {
                    words.push("--incidents".to_owned());
                }
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
            Self::Mcp => words.push("mcp".to_owned()),
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
        if matches!(self.command, Command::Mcp) {
            mcp::serve(self)?;
            return Ok(0);
        }
        let never = AtomicBool::new(false);
        let limits =
            Limits { patience: self.timeout, until: None, max_bytes: MAX_OUTPUT_BYTES, is_cancelled: &never };
        let Gathered { text, notes, code, has_answer: _ } = self.gather(&Asked {
            words: &self.command.typed(self.output),
            form: self.output,
            nodes: &self.which.node,
            is_one_enough: false,
            limits,
        })?;
        for Note { node, text } in notes {
            say(&format!("{node}: {text}"));
        }
        output::write(&mut text.into_bytes())?;
        Ok(code)
    }

    /// Runs a command on the nodes, and puts together what they print.
    fn gather(&self, asked: &Asked<'_>) -> anyhow::Result<Gathered> {
        let kubectl = Kubectl {
            context: self.which.context.clone(),
            kubeconfig: self.which.kubeconfig.clone(),
            namespace: self.which.namespace.clone(),
        };
        let Found { agents, strangers } =
            agents::list(&kubectl, &self.which.selector, &self.which.container, asked.limits)?;
        let mut notes = Vec::new();
        for pod in strangers {
            let text = "it has an agent's labels, and no DaemonSet made it: it is not asked".to_owned();
            notes.push(Note { node: pod, text });
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
        let names = asked.nodes;
        let mut wanted: Vec<Agent> =
            agents.into_iter().filter(|agent| names.is_empty() || names.contains(&agent.node)).collect();
        let there: BTreeSet<&str> = wanted.iter().map(|agent| agent.node.as_str()).collect();
        let mut code = 0;
        let named: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for absent in named.difference(&there) {
            notes.push(Note { node: (*absent).to_owned(), text: "no agent's pod is there".to_owned() });
            code = CANNOT;
        }
        if asked.is_one_enough && names.is_empty() {
            wanted.retain(|agent| agent.pod.is_ok());
            wanted.truncate(1);
        }
        let mut answers = Vec::new();
        for (node, ended) in self.ask(&kubectl, wanted, asked) {
            match ended {
                Ok(Ended { stdout, stderr, code: status }) => {
                    let has_failed = status >= CANNOT;
                    if has_failed && stderr.trim().is_empty() {
                        let text = format!("its command ended with exit code {status}");
                        notes.push(Note { node: node.clone(), text });
                    }
                    for line in stderr.lines().filter(|line| !line.trim().is_empty()) {
                        let text = line.strip_prefix("sandprobe: ").unwrap_or(line).to_owned();
                        notes.push(Note { node: node.clone(), text });
                    }
                    code = code.max(status.min(CANNOT));
                    // A command that failed and printed nothing has not answered.
                    if !(has_failed && stdout.is_empty()) {
                        answers.push(Answer { node, text: stdout });
                    }
                }
                Err(text) => {
                    notes.push(Note { node, text });
                    code = CANNOT;
                }
            }
        }
        let text = match asked.form {
            Form::Text => together::text(&answers),
            Form::Json => {
                let (lines, unread) = together::json(&answers);
                for node in unread {
                    let text = "its answer is not JSON".to_owned();
                    notes.push(Note { node: node.to_owned(), text });
                    code = CANNOT;
                }
                lines
            }
        };
        let has_answer = !answers.is_empty();
        Ok(Gathered { text, notes, code, has_answer })
    }

    /// Returns what each node answers, or why it does not, in the order of the nodes' names.
    fn ask(
        &self,
        kubectl: &Kubectl,
        agents: Vec<Agent>,
        asked: &Asked<'_>,
    ) -> Vec<(String, Result<Ended, String>)> {
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
                        let ended = pod.and_then(|pod| {
                            kubectl.exec(&pod, &self.which.container, asked.words, asked.limits)
                        });
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

impl Nodes for Cluster {
    fn is_cluster(&self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        self.timeout
    }

    fn ask(&self, call: &Call<'_>, limits: Limits<'_>) -> Result<Reply, String> {
        let own = &self.which.node;
        if !own.is_empty()
            && let Some(other) = call.nodes.iter().find(|node| !own.contains(node))
        {
            let own = own.join(", ");
            return Err(format!(
                "the server was started with --node for {own} only: it does not ask {other}"
            ));
        }
        let nodes = if call.nodes.is_empty() { own } else { &call.nodes };
        let asked = Asked {
            words: &call.words(&[]),
            form: call.form,
            nodes,
            is_one_enough: call.tool.is_one_enough,
            limits,
        };
        let Gathered { text, notes, has_answer, .. } =
            self.gather(&asked).map_err(|error| format!("{error:#}"))?;
        Ok(Reply { text, notes: together::notes(notes), has_answer })
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
        assert_eq!(typed("findings --incidents", Form::Text), "findings --incidents");
        assert_eq!(typed("pods --slow --context c -n ops", Form::Text), "pods --slow");
        assert_eq!(typed("pods --phases", Form::Text), "pods --phases");
        assert_eq!(typed("boot --restarts", Form::Text), "boot --restarts");
        for command in ["boot", "leaks", "doctor"] {
            assert_eq!(typed(command, Form::Json), format!("{command} --output=json"));
        }
    }
}
