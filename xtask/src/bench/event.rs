//! The events that are repeated while the programs in the kernel are measured.

use super::observer::Run;
use crate::{root, workspace};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A container has variables like this for each service of its namespace.
const VARIABLE: &str = "tcp://10.96.112.217:8080";
/// The kernel frees a namespace some time after the last process has left it.
const FREED: Duration = Duration::from_secs(1);
const BUSYBOX: &str = "/bin/busybox";
/// A runtime with the cgroupfs driver takes the whole word as the name of one directory, which runc removes
/// again.
const SLICE: &str = "kubelet-kubepods-besteffort-pod5d1cb95b_0000_4000_8000_000000000002.slice";

pub(super) struct Event {
    pub(super) name: &'static str,
    what: What,
}

enum What {
    /// A program begins and ends with this number of variables in its environment, each of this length.
    /// Length 0: a service's variables.
    Exec { place: Place, variables: usize, length: usize },
    /// A network namespace is made and left.
    Netns,
    /// A cgroup is made and removed.
    Cgroup,
    /// runc makes a container, runs a program in it and removes it.
    Container,
}

/// Where a program begins.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Host,
    /// In the cgroup of a container.
    Container,
}

pub(super) const EVENTS: [Event; 13] = [
    Event::exec("exec and exit on the host, no variables", Place::Host, 0, 0),
    Event::exec("exec and exit on the host, 30 variables", Place::Host, 30, 0),
    Event::exec("exec and exit on the host, 200 variables", Place::Host, 200, 0),
    Event::exec("exec and exit on the host, 1000 variables", Place::Host, 1000, 0),
    Event::exec("exec and exit on the host, one variable of 100 KB", Place::Host, 1, 100_000),
    Event::exec("exec and exit in a container, no variables", Place::Container, 0, 0),
    Event::exec("exec and exit in a container, 30 variables", Place::Container, 30, 0),
    Event::exec("exec and exit in a container, 200 variables", Place::Container, 200, 0),
    Event::exec("exec and exit in a container, 1000 variables", Place::Container, 1000, 0),
    Event::exec("exec and exit in a container, one variable of 100 KB", Place::Container, 1, 100_000),
    Event { name: "network namespace made and freed", what: What::Netns },
    Event { name: "cgroup made and removed", what: What::Cgroup },
    Event { name: "container run by runc", what: What::Container },
];

impl Event {
    const fn exec(name: &'static str, place: Place, variables: usize, length: usize) -> Self {
        Self { name, what: What::Exec { place, variables, length } }
    }
}

/// Makes events happen.
pub(super) struct Maker {
    /// The program that plays the processes of the tests.
    actor: PathBuf,
    bundle: TempDir,
    is_quick: bool,
}

impl Maker {
    pub(super) fn new(actor: PathBuf, is_quick: bool) -> Result<Self> {
        Ok(Self { actor, bundle: bundle()?, is_quick })
    }

    /// Makes the event happen many times, and returns the microseconds that each took.
    pub(super) fn make(&self, event: &Event) -> Result<f64> {
        let mut commands = self.commands(event)?;
        let begun = Instant::now();
        commands.iter_mut().try_for_each(workspace::run)?;
        let took = begun.elapsed();
        if matches!(event.what, What::Netns | What::Container) {
            thread::sleep(FREED);
        }
        Ok(took.as_secs_f64() * 1e6 / f64::from(self.count(event)))
    }

    /// Returns how often the event happened. Other work on the machine starts programs too, so for programs
    /// that begin and end this is the number of runs of the eBPF program that ran most often.
    pub(super) fn times(&self, event: &Event, runs: &BTreeMap<String, Run>) -> f64 {
        let made = f64::from(self.count(event));
        match event.what {
            What::Exec { .. } => runs.values().map(|run| run.count).fold(made, f64::max),
            What::Netns | What::Cgroup | What::Container => made,
        }
    }

    fn count(&self, event: &Event) -> u32 {
        match event.what {
            What::Exec { .. } | What::Cgroup => {
                if self.is_quick {
                    100
                } else {
                    2000
                }
            }
            What::Netns => {
                if self.is_quick {
                    20
                } else {
                    200
                }
            }
            What::Container => {
                if self.is_quick {
                    2
                } else {
                    20
                }
            }
        }
    }

    fn commands(&self, event: &Event) -> Result<Vec<Command>> {
        let times = self.count(event);
        Ok(match event.what {
            What::Exec { place, variables, length } => vec![self.execs(place, variables, length, times)],
            What::Netns => vec![self.pairs("netns", times)],
            What::Cgroup => vec![self.pairs("cgroups", times)],
            What::Container => (0..times).map(|number| self.container(number)).collect::<Result<_>>()?,
        })
    }

    fn execs(&self, place: Place, variables: usize, length: usize, times: u32) -> Command {
        let mut command = match place {
            Place::Host => Command::new(&self.actor),
            Place::Container => {
                let mut command = root::command(&self.actor);
                command.arg("contained").arg(&self.actor);
                command
            }
        };
        command.env_clear().stdin(Stdio::null()).args(["repeat", &times.to_string()]).arg(&self.actor);
        command.args(["exit", "0"]);
        let value = if length == 0 { VARIABLE.to_owned() } else { "x".repeat(length) };
        for number in 0..variables {
            command.env(format!("SERVICE_{number}_PORT"), &value);
        }
        command
    }

    fn pairs(&self, role: &str, times: u32) -> Command {
        let mut command = root::command(&self.actor);
        command.args([role, &times.to_string()]);
        command
    }

    fn container(&self, number: u32) -> Result<Command> {
        let bundle = self.bundle.path().join(number.to_string());
        let id = format!("{:032x}{number:032x}", std::process::id());
        configure(self.bundle.path(), &bundle, &id)?;
        let mut command = root::command("runc");
        command.arg("--root").arg(self.bundle.path().join("state"));
        command.args(["run", "--bundle"]).arg(bundle).arg(id).stdin(Stdio::null());
        Ok(command)
    }
}

/// Makes a folder with a root file system of busybox alone, and with runc's own example of a configuration.
fn bundle() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("rootfs/bin");
    fs::create_dir_all(&bin)?;
    fs::copy(BUSYBOX, bin.join("busybox")).with_context(|| format!("cannot copy {BUSYBOX}"))?;
    let path = workspace::which("runc").context("there is no runc")?;
    workspace::run(Command::new(path).arg("spec").arg("--bundle").arg(folder.path()))?;
    Ok(folder)
}

/// Writes the configuration of one container of a pod.
fn configure(template: &Path, bundle: &Path, id: &str) -> Result<()> {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(template.join("config.json"))?)?;
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/busybox", "true"]);
    config["root"]["path"] = json!(template.join("rootfs"));
    config["linux"]["cgroupsPath"] = json!(format!("/{SLICE}:cri-containerd:{id}"));
    fs::create_dir_all(bundle)?;
    fs::write(bundle.join("config.json"), config.to_string())?;
    Ok(())
}
