//! Runs real pods on a private containerd under live hooks. One pod leaks its address. The demo shows what
//! sandprobe reports of each pod. It removes everything that it made at its end, also after an error.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::{Deserializer, Value};
use tests::{
    containerd::Options,
    finding::kind_and_form,
    interrupt::Interrupt,
    kubelet::{Container, Kubelet, Pod},
    node::Node,
    story::{Action, Stage},
    stream::Stream,
};

const LIMIT: Duration = Duration::from_secs(60);

/// An undisturbed runtime finishes within this time.
const LEAK_GRACE: &str = "5s";

/// The findings that the last pod must have, as one incident whose cause is the first. The node may have
/// other findings.
const EXPECTED: [&str; 3] = [DUPLICATE, "teardown_out_of_order/pause_killed", LEAKED];
const DUPLICATE: &str = "duplicate_sandbox/after_completion";
const LEAKED: &str = "leaked_address/del_blind";

/// The lines about them in the list of findings: the first cause at the top, and below each effect its cause.
const CHAIN: [&str; 5] = [
    "duplicate_sandbox",
    "teardown_out_of_order",
    "caused by duplicate_sandbox",
    "leaked_address",
    "caused by teardown_out_of_order",
];

/// The events of a timeline. The runtime's own programs are left out.
const EVENTS: [&str; 20] = [
    "pod.first_seen",
    "pod.gone",
    "sandbox.created",
    "sandbox.ready",
    "sandbox.stopped",
    "container.started",
    "container.exited",
    "cni.started",
    "cni.finished",
    "netns.created",
    "netns.destroyed",
    "netns.freed",
    "address.added",
    "address.removed",
    "cgroup.created",
    "cgroup.removed",
    "finding.opened",
    "finding.confirmed",
    "finding.closed",
    "gap",
];

#[derive(Parser)]
#[command(
    about = "Leaks a pod's address on a private runtime, and shows the events and findings of sandprobe"
)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// Keep the recording of the run here
    #[arg(long, value_name = "FILE")]
    keep: Option<String>,
}

/// A pod, and the notable events of its life.
struct Scene {
    pod: Pod,
    about: &'static str,
    /// How often its container runs in the one sandbox.
    attempts: u32,
}

const LEAK: &str = "its sandbox is over, and its address is never freed";

fn scenes() -> Vec<Scene> {
    const LITTLE: i64 = 16 << 20;
    let hungry = Container { memory_limit: Some(LITTLE), ..Container::shell("eater", "tail /dev/zero") };
    let agent = Pod { host_network: true, ..pod("agent", 3) };
    vec![
        Scene {
            pod: pod("job", 1).with(Container::shell("main", "true")),
            about: "a job: one container that exits 0",
            attempts: 1,
        },
        Scene {
            pod: pod("crasher", 2).with(Container::shell("main", "exit 1")),
            about: "a container that crashes and is started again: the sandbox stays the same",
            attempts: 3,
        },
        Scene {
            pod: agent.with(Container::shell("main", "true")),
            about: "on the host's network: no CNI call, named by its OCI bundle and log folder",
            attempts: 1,
        },
        Scene { pod: pod("hungry", 4).with(hungry), about: "killed by the OOM killer", attempts: 1 },
    ]
}

fn leaking() -> Pod {
    pod("report", 5).with(Container::shell("main", "true"))
}

fn pod(name: &str, number: u32) -> Pod {
    Pod::new(name, &format!("de300000-0000-4000-8000-{number:012}"))
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    ensure!(!cli.options.dual_stack, "the demo's CNI plugin supports only IPv4: leave out --dual-stack");
    let options = Options { keyed: true, ..cli.options };
    let interrupt = Interrupt::watch()?;
    let directory = tempfile::tempdir().context("make a temporary directory")?;
    let recording = directory.path().join("demo.jsonl");

    print("Starting a private containerd, and sandprobe beside it.");
    let mut node = Node::start_with(&options)?;
    let played = play(&mut node, &recording, &interrupt);
    node.stop()?;
    if interrupt.wait(Duration::ZERO) {
        print("Interrupted: everything is removed again.");
        return Ok(ExitCode::FAILURE);
    }
    played?;
    for scene in scenes() {
        show(&recording, &scene.pod.name, scene.about)?;
    }
    show(&recording, &leaking().name, LEAK)?;
    if let Some(file) = cli.keep {
        std::fs::copy(&recording, &file).with_context(|| format!("keep the recording in {file}"))?;
    }
    print("\nWhat is wrong (sandprobe findings):");
    let list = output(&["findings"], &recording)?;
    print(list.trim_end());
    let found = found(&recording)?;
    let missed: Vec<_> = EXPECTED.into_iter().filter(|word| !found.contains_key(*word)).collect();
    if !missed.is_empty() {
        print(&format!("\nExpected and not found: {}.", missed.join(", ")));
        return Ok(ExitCode::FAILURE);
    }
    let (told, first) = (found.values().map(|it| &it.incident), &found[DUPLICATE].key);
    if told.clone().any(|incident| incident != first) {
        let told: Vec<_> = told.map(String::as_str).collect();
        print(&format!("\nThese are not one incident: {}.", told.join(", ")));
        return Ok(ExitCode::FAILURE);
    }
    if !is_chain(&list) {
        print(&format!("\nThe list above does not tell them one below the other: {}.", CHAIN.join(", ")));
        return Ok(ExitCode::FAILURE);
    }
    print("\nWhy the address is lost (sandprobe explain leaked_address):\n");
    sandprobe(&["explain", &found[LEAKED].key], &recording)?;
    print(
        "\nEverything is removed again. You saw a replay of the run; cargo xtask run shows your own node live.",
    );
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn print(line: &str) {
    println!("{line}");
}

/// Runs every pod under a recording agent. An interrupt is an error.
fn play(node: &mut Node, recording: &Path, interrupt: &Interrupt) -> Result<()> {
    let recording = recording.to_str().context("the temporary directory's path is not UTF-8")?;
    let network = node.network();
    let store = format!("{}:{}", network.store().display(), network.name);
    let settings = ["--node", "demo-node", "--ipam-store", &store, "--leak-grace", LEAK_GRACE];
    let mut agent = Stream::start(&[&["record", recording], &settings[..]].concat())?;
    let mut kubelet = node.kubelet()?;
    for scene in scenes() {
        interrupt.check()?;
        print(&format!("Running {}: {}.", scene.pod.name, scene.about));
        live(&mut kubelet, &scene)?;
    }

    let pod = leaking();
    print(&format!("Running {}: a job whose address is leaked.", pod.name));
    let mut done = Vec::new();
    let mut stage = Stage::new(node)?.before_each(move |action| {
        if let Some(text) = progress(action, done.contains(&action)) {
            print(&format!("  {text}"));
        }
        done.push(action);
        interrupt.check()
    });
    stage.redundant_sandbox(&pod)?;
    print(&format!(
        "Waiting until sandprobe is sure: --leak-grace is {LEAK_GRACE} here, 2 minutes by default."
    ));
    for wanted in EXPECTED {
        interrupt.check()?;
        let outcome = agent.until(&format!("{wanted} confirmed"), |event| {
            event["event"] == "finding.confirmed" && kind_and_form(&event["finding"]) == wanted
        });
        if outcome.is_err() {
            // The findings are shown, and then the missing ones.
            break;
        }
    }
    stage.clean()?;
    agent.end().map(drop)
}

/// Returns the text for an action, done for the first time or again. `None`: the action needs no text.
fn progress(action: Action, again: bool) -> Option<&'static str> {
    match action {
        Action::RunSandbox if again => Some("another sandbox is made, in which nothing will ever run"),
        Action::RunSandbox => Some("a sandbox is made"),
        Action::WaitForExit => Some("its only container exits 0"),
        Action::StopSandbox if again => {
            Some("the runtime stops the second sandbox: DEL with an empty CNI_NETNS")
        }
        Action::StopSandbox => Some("the runtime stops the sandbox: DEL, and the address is free"),
        Action::KillSandbox => Some("its pause process is killed, behind the runtime's back"),
        Action::LoseNetns => Some("the file that keeps its network namespace is removed"),
        Action::RemoveSandbox
        | Action::MakeCgroup
        | Action::RunContainer
        | Action::RemoveCgroup
        | Action::StarveSandbox
        | Action::BindNetns
        | Action::EndRuntime
        | Action::KillRuntime
        | Action::ForgetAll
        | Action::StartRuntime => None,
    }
}

fn live(kubelet: &mut Kubelet, scene: &Scene) -> Result<()> {
    let pod = &scene.pod;
    kubelet.prepare(pod)?;
    let sandbox = kubelet.run_sandbox(pod, 0)?;
    for attempt in 0..scene.attempts {
        let mut started = Vec::new();
        for container in &pod.containers {
            started.push(kubelet.run_container(pod, &sandbox, container, attempt)?);
        }
        for container in started {
            kubelet.wait_exit(&container.id, LIMIT)?;
        }
    }
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(pod)
}

/// Prints the events of one pod from the recording.
fn show(recording: &Path, pod: &str, about: &str) -> Result<()> {
    print(&format!("\n{pod}: {about}"));
    let mut replay = Command::new("sandprobe");
    replay.arg("replay").arg(recording).args(["--pod", pod]);
    replay.args(EVENTS.iter().flat_map(|event| ["--event", event]));
    let status = replay.status().context("start sandprobe replay")?;
    ensure!(status.success(), "sandprobe replay ended with {status}");
    Ok(())
}

/// Runs a `sandprobe` command about findings and shows its output.
fn sandprobe(arguments: &[&str], recording: &Path) -> Result<()> {
    let mut command = Command::new("sandprobe");
    let status = command.args(arguments).arg("--recording").arg(recording).status();
    let status = status.with_context(|| format!("start sandprobe {}", arguments.join(" ")))?;
    ensure!(status.success(), "sandprobe {} ended with {status}", arguments.join(" "));
    Ok(())
}

/// What a `sandprobe` command about findings prints.
fn output(arguments: &[&str], recording: &Path) -> Result<String> {
    let mut command = Command::new("sandprobe");
    command.args(arguments).arg("--recording").arg(recording).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("start sandprobe {}", arguments.join(" ")))?;
    ensure!(output.status.success(), "sandprobe {} ended with {}", arguments.join(" "), output.status);
    String::from_utf8(output.stdout).context("sandprobe's output is no text")
}

/// Whether a list shows the findings of the last pod as one chain.
fn is_chain(list: &str) -> bool {
    let pod = format!("default/{}", leaking().name);
    let told = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["caused", "by", cause, ..] => format!("caused by {}", cause.trim_end_matches(':')),
            [_, _, kind, of, ..] if of == pod => kind.to_owned(),
            _ => String::new(),
        }
    };
    let told: Vec<String> = list.lines().map(told).collect();
    told.windows(CHAIN.len()).any(|lines| lines == CHAIN)
}

/// The keys of a finding and of its incident.
struct Found {
    key: String,
    incident: String,
}

/// Returns the findings of the last pod by their kinds.
fn found(recording: &Path) -> Result<BTreeMap<String, Found>> {
    let pod = leaking();
    let lines = output(&["findings", "--all", "--pod", &pod.name, "-o", "json"], recording)?;
    let mut found = BTreeMap::new();
    for value in Deserializer::from_str(&lines).into_iter::<Value>() {
        let finding = value?;
        if finding["pod"]["uid"] == pod.uid && finding["confirmed_at"].is_string() {
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            found.insert(kind_and_form(&finding), Found { key: text("key"), incident: text("incident") });
        }
    }
    Ok(found)
}
