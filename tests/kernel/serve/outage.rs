//! The network of a node is down for all its pods, and the ADDs fail many times faster than a kubelet
//! retries. The agent must still answer, at a cost that a node can bear.

use std::{
    collections::BTreeSet,
    fs, mem,
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use tests::{clock, live::Shared, machine};

use super::client::{Agent, get};
use crate::{
    cni::call::{Environment, Runtime},
    container::new_id,
};

const PODS: usize = 110;
/// The number of failed ADDs of each pod. A kubelet that retries every ten seconds takes two and a half
/// minutes for them.
const ROUNDS: usize = 15;
/// The number for a program that is not optimized, and the time between two ADDs. A kubelet
/// retries every ten seconds: it takes a minute for them.
const QUICK: (usize, Duration) = (6, Duration::from_millis(10));
/// In a soak run: the retries of a kubelet in ten minutes.
const SOAK: (usize, Duration) = (60, Duration::from_millis(10_000 / PODS as u64));
/// What somebody asks in such an outage.
const QUESTIONS: [&str; 4] = ["/v1/findings", "/v1/incidents", "/v1/pods", "/v1/pools"];
/// The bound on the 99th percentile of the answer time, and on the median time of those answers.
const LATE: Duration = Duration::from_millis(50);
/// The bound on the agent's CPU time for one failed ADD: a twentieth of a core if 110 pods are retried every
/// ten seconds.
const COST: Duration = Duration::from_micros(4_500);
/// The least time between two writes of the state.
const EVERY: Duration = Duration::from_secs(10);

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn an_outage_of_the_network_does_not_keep_the_agent_from_answering() -> Result<()> {
    let _shared = Shared::start()?;
    let state = tempfile::tempdir()?;
    let agent = Agent::with_state(state.path().to_str().context("the path is no text")?)?;
    let (rounds, pace) = match machine::is_emulated() {
        true => (1, Duration::ZERO),
        false if machine::is_soak() => SOAK,
        // A program that is not optimized could not keep up with as many as the machine can run.
        false if machine::is_quick() => QUICK,
        false => (ROUNDS, Duration::ZERO),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let probing = thread::spawn({
        let (address, stop) = (agent.address, Arc::clone(&stop));
        move || probe_health(address, &stop)
    });
    let mut runtime = Runtime::start()?;
    let mut fail = |round: usize| -> Result<()> {
        let begun = Instant::now();
        for (pod, due) in (0..PODS).zip(1..) {
            let uid = format!("00000000-0000-4000-8000-{pod:012}");
            let args = format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=down-{pod};K8S_POD_UID={uid}"
            );
            let netns = format!("/run/netns/cni-{round:04}-{pod:04}");
            let add = Environment::of_add(&new_id()?).with("CNI_ARGS", &args).with("CNI_NETNS", &netns);
            runtime.call(&add, &[])?;
            thread::sleep((pace * due).saturating_sub(begun.elapsed()));
        }
        Ok(())
    };
    // After this round the finding is reported, and only its numbers can change.
    fail(0)?;
    clock::poll("the finding", machine::patience(), || Ok(failing(&agent)?.filter(|it| it.1 >= 100)))?;
    let watching = Writes::watch(state.path().join("findings.json"), Arc::clone(&stop));
    let (begun, before) = (Instant::now(), used(agent.id())?);
    for round in 1..=rounds {
        fail(round)?;
    }
    let all = u64::try_from((1 + rounds) * PODS)?;
    // The agent forgets calls that are older than ten minutes.
    let all = if machine::is_soak() { all - all / 10 } else { all };
    let all_counted = || Ok(failing(&agent)?.filter(|(attempts, _)| *attempts >= all));
    clock::poll("all failed ADDs are counted", machine::patience(), all_counted)?;
    let (took, cpu) = (begun.elapsed(), used(agent.id())?.saturating_sub(before));
    stop.store(true, Ordering::Relaxed);
    let mut answers = probing.join().map_err(|_panic| anyhow!("the probing thread panicked"))??;
    let writes = watching.end()?;
    for question in QUESTIONS {
        let answer = median_answer(agent.address, question)?;
        println!("{question}: {answer:?}");
        ensure!(answer < LATE || machine::is_emulated(), "{question} took {answer:?}");
    }
    agent.end()?;

    answers.sort_unstable();
    let p99 = super::p99(answers.clone()).context("no answer came")?;
    let each = cpu / u32::try_from(rounds * PODS)?;
    println!(
        "{} failed ADDs in {took:?}: {cpu:?} of the agent, {each:?} each; {} answers, p99 {p99:?}, latest {:?}; state \
         written {writes} times",
        rounds * PODS,
        answers.len(),
        answers.last()
    );
    if !machine::is_emulated() {
        ensure!(p99 < LATE, "99 of 100 answers took up to {p99:?}");
        ensure!(each < COST || machine::is_quick(), "a failed ADD costs {each:?}");
        let most = 1 + took.as_secs() / EVERY.as_secs();
        ensure!(writes <= most, "the state was written {writes} times in {took:?}");
    }
    Ok(())
}

/// Returns the median time of nine answers.
fn median_answer(address: SocketAddr, question: &str) -> Result<Duration> {
    let mut answers = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        get(address, question)?;
        answers.push(begun.elapsed());
    }
    answers.sort_unstable();
    answers.get(answers.len() / 2).copied().context("no answer came")
}

/// Returns the number of failed ADDs and of their pods in the agent's finding.
fn failing(agent: &Agent) -> Result<Option<(u64, u64)>> {
    let answer: Value = serde_json::from_str(&get(agent.address, "/v1/findings")?)?;
    let all = answer["findings"].as_array().context("no findings")?;
    let it = all.iter().find(|it| it["key"] == "cni_failing/bridge" && it["stage"] == "confirmed");
    Ok(it.and_then(|it| Some((it["detail"]["attempts"].as_u64()?, it["detail"]["pods"].as_u64()?))))
}

/// Sends requests as a probe does until `stop` is set. Returns how long each answer took.
fn probe_health(address: SocketAddr, stop: &AtomicBool) -> Result<Vec<Duration>> {
    let mut answers = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        get(address, "/healthz")?;
        answers.push(begun.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(answers)
}

/// Returns the CPU time that a process has used on all cores.
fn used(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat has no command")?;
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    // `USER_HZ` is 100 on every architecture.
    Ok(Duration::from_millis(ticks * 10))
}

/// Counts how often the file of findings is replaced by one with the same findings.
struct Writes {
    stop: Arc<AtomicBool>,
    counting: JoinHandle<Result<u64>>,
}

impl Writes {
    fn watch(file: PathBuf, stop: Arc<AtomicBool>) -> Self {
        let counting = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                // Each write replaces the file by a new one. The periodic sign of life changes only the
                // file's time.
                let (mut last, mut count) = (fs::metadata(&file)?.ino(), 0);
                let mut keys = finding_keys(&file)?;
                while !stop.load(Ordering::Relaxed) {
                    let now = fs::metadata(&file)?.ino();
                    if now != last {
                        let before = mem::replace(&mut keys, finding_keys(&file)?);
                        count += u64::from(keys == before);
                        last = now;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(count)
            }
        });
        Self { stop, counting }
    }

    fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.counting.join().map_err(|_panic| anyhow!("the watching thread panicked"))?
    }
}

fn finding_keys(file: &Path) -> Result<BTreeSet<String>> {
    let kept: Value = serde_json::from_slice(&fs::read(file)?)?;
    let findings = kept["findings"].as_array().context("a file of findings")?;
    Ok(findings.iter().map(|it| it["key"].to_string()).collect())
}
