//! `sandprobe leaks`: one look at a node that nobody has watched, from its files alone.
//!
//! **Invariant:** reads only. It says that nothing is leaked only if it could look everywhere that it knows of.

mod agent;
mod report;
mod scan;

use clap::Args;

use super::node::args::NodeArgs;
use crate::{
    cli::{ExitStatus, args::Form, client::AgentArgs, output, say},
    model::{
        change::Finding,
        finding::{Kind, Stage},
    },
    sink::jsonl,
    source::netns_limit::NetnsLimit,
};
use scan::{LeakScan, ScanResult};

/// Where the agent tells of its CNI plugins.
const POOLS: &str = "/v1/pools";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(in crate::cli) struct Leaks {
    /// Write a script that frees what is leaked, each after a check under the plugin's own lock; run nothing
    #[arg(long, conflicts_with = "output")]
    repair_script: bool,

    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    agent: AgentArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  no address is leaked, as far as the grace goes: candidates alone are no leak yet
  1  at least one address is leaked
  2  could not look, or not everywhere: nothing leaked was found, but it may be there";

impl Leaks {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let (config, stores) = self.node.config.load()?;
        let result =
            LeakScan { root: &self.node.host.host_root, stores: &stores, limits: config.limits() }.look()?;
        for caveat in &result.caveats {
            say(caveat);
        }
        let leaked: Vec<&Finding> = result.findings.iter().filter(|it| is_leaked(it)).collect();
        let is_found = leaked.iter().any(|it| it.stage == Stage::Confirmed);
        if let Some(why) = result.blind() {
            say(&why);
            if !is_found {
                if matches!((self.repair_script, self.output), (false, Form::Text)) {
                    output::write(&mut self.beside(&result).into_bytes())?;
                }
                return Ok(ExitStatus::CannotRun);
            }
        }
        output::write(&mut self.told(&result, &leaked))?;
        Ok(if is_found { ExitStatus::Incomplete } else { ExitStatus::Ok })
    }

    /// What is known without a store: what the agent of this node, if one runs, knows of each CNI plugin, and how many
    /// network namespaces there are.
    fn beside(&self, result: &ScanResult) -> String {
        let Some(count) = result.netns else { return String::new() };
        let balance = self.balance().unwrap_or_else(|why| {
            if let Some(why) = why {
                say(&format!("the balance of the CNI plugins is not known: {why}"));
            }
            String::new()
        });
        balance + &report::namespaces(count, NetnsLimit::open().read())
    }

    /// The error has a reason if it is to be reported.
    fn balance(&self) -> Result<String, Option<String>> {
        let answer = self.agent.ask_or_why(POOLS)?;
        agent::balance(&answer).map_err(|error| Some(format!("{}: {error}", self.agent.answer_at(POOLS))))
    }

    fn told(&self, result: &ScanResult, leaked: &[&Finding]) -> Vec<u8> {
        if self.repair_script {
            return report::script(leaked).into_bytes();
        }
        match self.output {
            Form::Text => (report::text(result, leaked) + &self.beside(result)).into_bytes(),
            Form::Json => {
                let mut bytes = Vec::new();
                result.findings.iter().for_each(|it| jsonl::finding(it, &result.label, &mut bytes));
                bytes
            }
        }
    }
}

fn is_leaked(finding: &Finding) -> bool {
    matches!(finding.kind, Kind::LeakedAddress(_) | Kind::OwnerlessReservation(_))
}
