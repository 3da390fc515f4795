//! Runs many pods, several at a time, each from its cgroup to its removal. Prints the facts about each as a
//! line of JSON. Without `--socket` the pods run in a private containerd, which is removed afterwards.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use tests::{
    clock,
    containerd::{Containerd, Options},
    interrupt::Interrupt,
    kubelet::{Container, Kubelet, Pod, PodLife, Qos},
};

#[derive(Parser)]
#[command(about = "Runs many pods and prints the facts about each as a line of JSON")]
struct Cli {
    /// How many pods
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// How many at a time
    #[arg(long, default_value_t = 4)]
    concurrency: u32,
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The pods are PREFIX-0, PREFIX-1, …
    #[arg(long, default_value = "web")]
    prefix: String,
    #[arg(long, value_enum, default_value_t)]
    qos: Qos,
    #[arg(long)]
    host_network: bool,
    /// A line of shell; each makes a container of every pod
    #[arg(long = "container", default_value = "true")]
    containers: Vec<String>,
    /// Bytes of memory beyond which the kernel kills
    #[arg(long)]
    memory_limit: Option<i64>,
    /// Seconds to wait for a container's end
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// A runtime that is already there
    #[arg(long, env = "CRI_SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let interrupt = Interrupt::watch()?;
    if let Some(socket) = &cli.socket {
        return live_all(&cli, socket, &interrupt);
    }
    let containerd = Containerd::start(&cli.options)?;
    let outcome = live_all(&cli, containerd.socket(), &interrupt);
    containerd.stop()?;
    outcome
}

fn live_all(cli: &Cli, socket: &Path, interrupt: &Interrupt) -> Result<()> {
    let first = Kubelet::new(socket, cli.options.cgroup_driver)?;
    let birth = clock::boot_ns()?;
    let next = AtomicU32::new(0);
    let work = |mut kubelet: Kubelet| -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= cli.count {
                return Ok(());
            }
            interrupt.check()?;
            let pod = pod(cli, index, birth);
            let life = kubelet.live(&pod, Duration::from_secs(cli.limit));
            print(&life.with_context(|| format!("pod {}/{}", pod.namespace, pod.name))?)?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cli.concurrency.min(cli.count))
            .map(|_| first.another().map(|kubelet| scope.spawn(|| work(kubelet))))
            .collect::<Result<_>>()?;
        // Waits for all workers and returns the first error.
        let outcomes: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map_err(|_panic| anyhow!("a worker panicked"))?)
    })
}

fn pod(cli: &Cli, index: u32, birth: u64) -> Pod {
    let name = format!("{}-{index}", cli.prefix);
    // Unique on this machine since its boot, in the shape of a random UUID.
    let uid = format!(
        "{:08x}-{:04x}-4000-8000-{:012x}",
        index,
        std::process::id() & 0xffff,
        birth & 0xffff_ffff_ffff
    );
    let mut pod = Pod {
        namespace: cli.namespace.clone(),
        qos: cli.qos,
        host_network: cli.host_network,
        ..Pod::new(&name, &uid)
    };
    for (number, line) in cli.containers.iter().enumerate() {
        let name = if number == 0 { "main".to_owned() } else { format!("side-{number}") };
        pod = pod.with(Container { memory_limit: cli.memory_limit, ..Container::shell(&name, line) });
    }
    pod
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn print(life: &PodLife) -> Result<()> {
    // One call, so that the lines of several threads do not mix.
    println!("{}", serde_json::to_string(life)?);
    Ok(())
}
