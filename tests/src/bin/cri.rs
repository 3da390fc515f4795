//! A manual CRI client. One run makes one call, or runs one pod's whole life as a kubelet would.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use tests::{
    cri::Cri,
    kubelet::{Container, Driver, Kubelet, Pod, Qos},
};

#[derive(Parser)]
#[command(about = "Makes the CRI calls of a kubelet by hand")]
struct Cli {
    /// The runtime's socket.
    #[arg(long, env = "CRI_SOCKET", default_value = "/run/containerd/containerd.sock")]
    socket: PathBuf,
    #[arg(long, env = "CRI_CGROUP_DRIVER", value_enum, default_value_t)]
    cgroup_driver: Driver,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Print the runtime's name and version
    Version,
    /// List sandboxes
    Pods,
    /// List containers
    Containers,
    /// Start a pod with one container, and print the ids
    Run {
        #[command(flatten)]
        pod: PodArgs,
        /// Counts the pod's sandboxes
        #[arg(long, default_value_t = 0)]
        attempt: u32,
    },
    /// Run a pod from its cgroup to its removal, and print the truth as JSON
    Life {
        #[command(flatten)]
        pod: PodArgs,
    },
    /// Stop a sandbox
    Stop { sandbox: String },
    /// Remove a sandbox
    Remove { sandbox: String },
}

#[derive(Args)]
struct PodArgs {
    name: String,
    uid: String,
    #[arg(long, default_value = "default")]
    namespace: String,
    #[arg(long, value_enum, default_value_t)]
    qos: Qos,
    #[arg(long)]
    host_network: bool,
    /// The line of shell its container runs
    #[arg(long, default_value = "true")]
    command: String,
}

impl PodArgs {
    fn pod(self) -> Pod {
        Pod {
            namespace: self.namespace,
            qos: self.qos,
            host_network: self.host_network,
            ..Pod::new(&self.name, &self.uid).with(Container::shell("main", &self.command))
        }
    }
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn main() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(120);
    let cli = Cli::parse();
    match cli.verb {
        Verb::Version => {
            let version = Cri::connect(&cli.socket)?.version()?;
            println!(
                "{} {} (CRI {})",
                version.runtime_name, version.runtime_version, version.runtime_api_version
            );
        }
        Verb::Pods => {
            for sandbox in Cri::connect(&cli.socket)?.list_pod_sandbox()? {
                let state = sandbox.state();
                let of = sandbox.metadata.unwrap_or_default();
                println!("{} {state:?} {}/{} {} {}", sandbox.id, of.namespace, of.name, of.uid, of.attempt);
            }
        }
        Verb::Containers => {
            for container in Cri::connect(&cli.socket)?.list_containers()? {
                let state = container.state();
                let of = container.metadata.unwrap_or_default();
                println!(
                    "{} {state:?} {} {} in {}",
                    container.id, of.name, of.attempt, container.pod_sandbox_id
                );
            }
        }
        Verb::Run { pod, attempt } => {
            let mut kubelet = Kubelet::new(&cli.socket, cli.cgroup_driver)?;
            let pod = pod.pod();
            kubelet.prepare(&pod)?;
            let sandbox = kubelet.run_sandbox(&pod, attempt)?;
            println!("{}", sandbox.id);
            for container in &pod.containers {
                println!("{}", kubelet.run_container(&pod, &sandbox, container, 0)?.id);
            }
        }
        Verb::Life { pod } => {
            let life = Kubelet::new(&cli.socket, cli.cgroup_driver)?.live(&pod.pod(), LIMIT)?;
            println!("{}", serde_json::to_string_pretty(&life)?);
        }
        Verb::Stop { sandbox } => Cri::connect(&cli.socket)?.stop_pod_sandbox(&sandbox)?,
        Verb::Remove { sandbox } => Cri::connect(&cli.socket)?.remove_pod_sandbox(&sandbox)?,
    }
    Ok(())
}
