//! `sandprobe leaks`: one scan of a node that nobody has watched, from its files alone.
//!
//! **Invariant:** reads only. It reports that nothing is leaked only if it could look everywhere that it
//! knows of.

mod agent;
mod report;
mod scan;

use std::collections::BTreeSet;

use clap::Args;

use super::node::args::NodeArgs;
use crate::{
    cli::{
        ExitStatus,
        args::Form,
        client::{AgentArgs, FINDINGS, POOLS, Unanswered},
        output, say,
    },
    model::{
        change::Finding,
        finding::{Kind, Stage},
    },
    sink::render::jsonl,
    source::node::netns_limit::NetnsLimit,
};
use scan::{LeakScan, ScanResult};

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
  1  at least one address is leaked, even if sandprobe could not look everywhere
  2  could not look, or not everywhere: nothing leaked was found, but it may be there";

impl Leaks {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let (mut bytes, done) = self.scan()?;
        output::write(&mut bytes)?;
        Ok(done)
    }

    /// Returns what is found, as it is printed.
    fn scan(&self) -> anyhow::Result<(Vec<u8>, ExitStatus)> {
        let (config, stores) = self.node.config.load()?;
        let (confirmed, has_agent) = self.confirmed();
        let result =
            LeakScan { root: &self.node.host.host_root, stores: &stores, limits: config.limits(), confirmed }
                .run()?;
        for caveat in &result.caveats {
            say(caveat);
        }
        let leaked: Vec<&Finding> = result.findings.iter().filter(|it| is_leaked(it)).collect();
        let blind = result.blind();
        blind.iter().for_each(|why| say(why));
        let done = match blind {
            _ if leaked.iter().any(|it| it.stage == Stage::Confirmed) => ExitStatus::Incomplete,
            Some(_) => ExitStatus::CannotRun,
            None => ExitStatus::Ok,
        };
        Ok((self.render(&result, &leaked, done, has_agent), done))
    }

    /// Returns what is known without a store: what the agent of this node, if one runs, knows about each CNI
    /// plugin, and how many network namespaces there are.
    fn beside(&self, result: &ScanResult, has_agent: bool) -> String {
        let Some(count) = result.netns else { return String::new() };
        let balance = self.balance(has_agent).unwrap_or_else(|why| {
            if let Some(why) = why {
                say(&format!("the balance of the CNI plugins is not known: {why}"));
            }
            String::new()
        });
        balance + &report::namespaces(count, NetnsLimit::open().read())
    }

    /// Returns the keys of the findings that the agent of this node has confirmed, and whether an agent
    /// answers.
    fn confirmed(&self) -> (BTreeSet<String>, bool) {
        let answer = match self.agent.ask_or_why(FINDINGS) {
            Ok(answer) => answer,
            Err(why) => {
                // Nobody waits twice for an agent that hangs.
                let has_agent = matches!(why, Unanswered::Silent(_));
                if let Some(why) = why.why() {
                    say(&format!("nothing is known of the agent's findings: {why}"));
                }
                return (BTreeSet::new(), has_agent);
            }
        };
        let confirmed = agent::confirmed(&answer).unwrap_or_else(|error| {
            say(&format!("{}: {error}", self.agent.answer_at(FINDINGS)));
            BTreeSet::new()
        });
        (confirmed, true)
    }

    /// Returns the table of the agent's CNI plugins. The error has a reason if it is to be reported.
    fn balance(&self, has_agent: bool) -> Result<String, Option<String>> {
        if !has_agent {
            return Ok(String::new());
        }
        let answer = self.agent.ask_or_why(POOLS).map_err(Unanswered::why)?;
        agent::balance(&answer).map_err(|error| Some(format!("{}: {error}", self.agent.answer_at(POOLS))))
    }

    fn render(&self, result: &ScanResult, leaked: &[&Finding], done: ExitStatus, has_agent: bool) -> Vec<u8> {
        let is_sure = done != ExitStatus::CannotRun;
        if self.repair_script {
            // Nobody takes an empty file for a script that has nothing to free.
            return if is_sure { report::script(result, leaked).into_bytes() } else { Vec::new() };
        }
        match self.output {
            Form::Text => {
                (report::text(result, leaked, is_sure) + &self.beside(result, has_agent)).into_bytes()
            }
            Form::Json => {
                let mut bytes = Vec::new();
                result.findings.iter().for_each(|it| jsonl::finding(it, &result.label, &mut bytes));
                report::unjudged_lines(result, &mut bytes);
                bytes
            }
        }
    }
}

fn is_leaked(finding: &Finding) -> bool {
    matches!(finding.kind, Kind::LeakedAddress(_) | Kind::OwnerlessReservation(_))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::{fs::symlink, net::UnixListener},
        path::Path,
        thread,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use clap::Parser;
    use nix::{
        fcntl::AT_FDCWD,
        sys::{
            stat::{Mode, UtimensatFlags, utimensat},
            time::TimeSpec,
        },
        unistd::mkfifo,
    };

    use super::{ExitStatus, Leaks};

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        leaks: Leaks,
    }

    fn look(root: &Path, more: &[&str]) -> (String, ExitStatus) {
        let root = root.to_str().expect("a name");
        let Typed { leaks } = Typed::parse_from([&["leaks", "--host-root", root], more].concat());
        let (told, done) = leaks.scan().expect("a scan");
        (String::from_utf8(told).expect("text"), done)
    }

    /// How old the files are: with the short grace period of these tests a leak is confirmed, and with the
    /// long one it is a candidate. What is older than this boot counts from the boot.
    const AGE: Duration = Duration::from_secs(60);

    /// A file with the name of an address keeps the address from being given out, whatever it is.
    #[test]
    fn only_a_plain_file_that_names_nobody_is_freed() {
        let root = tempfile::tempdir().expect("a folder");
        let store = root.path().join("var/lib/cni/networks/podnet");
        let runtime = root.path().join("var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes");
        for folder in [store.join("10.88.0.5"), runtime] {
            fs::create_dir_all(folder).expect("a folder");
        }
        symlink("/dev/null", store.join("10.88.0.6")).expect("a link");
        mkfifo(&store.join("10.88.0.7"), Mode::S_IRUSR).expect("a FIFO");
        let past = TimeSpec::from_duration(UNIX_EPOCH.elapsed().expect("a time") - AGE);
        for entry in fs::read_dir(&store).expect("a folder") {
            let path = entry.expect("an entry").path();
            utimensat(AT_FDCWD, &path, &past, &past, UtimensatFlags::NoFollowSymlink).expect("a time");
        }
        let script = || look(root.path(), &["--leak-grace", "20s", "--repair-script"]).0;
        let stays = script();
        assert!(!stays.contains("free_ownerless"), "{stays}");
        for address in ["10.88.0.5", "10.88.0.6", "10.88.0.7"] {
            assert!(stays.contains(&format!("# {address} stays: a link, a directory or a FIFO")), "{stays}");
        }
        let plain = File::create(store.join("10.88.0.8")).expect("a file");
        plain.set_modified(SystemTime::now() - AGE).expect("a time");
        let freed = script();
        let calls: Vec<&str> = freed.lines().filter(|line| line.starts_with("try ")).collect();
        assert_eq!(calls, ["try free_ownerless '/var/lib/cni/networks/podnet' 10.88.0.8"], "{freed}");
    }

    /// Whoever does not answer once would be waited for again.
    #[test]
    fn an_agent_that_does_not_answer_is_asked_once() {
        let root = tempfile::tempdir().expect("a folder");
        let socket = root.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let agent = thread::spawn(move || {
            // It does not answer while its end of the connection is open.
            let client = listener.accept().expect("a client");
            (listener, client)
        });
        let socket = socket.to_str().expect("a name");
        let Typed { leaks } = Typed::parse_from(["leaks", "--socket", socket]);
        let (_, has_agent) = leaks.confirmed();
        assert_eq!((has_agent, leaks.balance(has_agent)), (false, Ok(String::new())));
        let (listener, _client) = agent.join().expect("a client");
        listener.set_nonblocking(true).expect("a socket");
        assert!(listener.accept().is_err(), "it was asked again");
    }

    /// A disk on which one store can be read and another one cannot.
    #[test]
    fn what_was_read_is_told_though_not_all_could_be() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let networks = root.join("var/lib/cni/networks");
        let sandboxes = root.join("var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes");
        for folder in [networks.join("podnet"), sandboxes] {
            fs::create_dir_all(folder).expect("a folder");
        }
        fs::write(networks.join("broken"), "").expect("a file");
        let record = networks.join("podnet/10.88.0.3");
        fs::write(&record, format!("{:064x}\r\neth0", 1)).expect("a file");
        let record = File::options().write(true).open(record).expect("a file");
        record.set_modified(SystemTime::now() - AGE).expect("a time");

        let (told, done) = look(root, &["--leak-grace", "150s"]);
        assert_eq!(done, ExitStatus::CannotRun);
        assert!(told.starts_with("NETWORK ") && told.contains("candidate  podnet   10.88.0.3"), "{told}");
        let (told, done) = look(root, &["--leak-grace", "150s", "-o", "json"]);
        assert!(told.contains("10.88.0.3") && done == ExitStatus::CannotRun, "{told}");
        let (script, done) = look(root, &["--leak-grace", "150s", "--repair-script"]);
        assert_eq!((script.as_str(), done), ("", ExitStatus::CannotRun));
        // A leak is reported even if sandprobe could not look everywhere.
        let (told, done) = look(root, &["--leak-grace", "20s"]);
        assert!(told.contains("confirmed") && done == ExitStatus::Incomplete, "{told}");
        let (script, done) = look(root, &["--leak-grace", "20s", "--repair-script"]);
        assert!(script.contains("10.88.0.3") && done == ExitStatus::Incomplete, "{script}");

        fs::remove_file(networks.join("podnet/10.88.0.3")).expect("a file");
        let (told, done) = look(root, &[]);
        assert!(told.contains("\nno leaked addresses, as far as sandprobe can see\n"), "{told}");
        assert_eq!(done, ExitStatus::CannotRun);
        fs::remove_file(networks.join("broken")).expect("a file");
        let (told, done) = look(root, &[]);
        assert!(told.ends_with("\nno leaked addresses\n") && done == ExitStatus::Ok, "{told}");
        let (script, done) = look(root, &["--repair-script"]);
        assert!(script.starts_with("#!/bin/sh\n") && done == ExitStatus::Ok, "{script}");
    }
}
