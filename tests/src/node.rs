//! A node to run pods on: a VM's own containerd where this is one of ours, else a private one.

mod vm;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    clock,
    containerd::{Containerd, Network, Options},
    cri::Cri,
    keyed::Faults,
    kubelet::{Driver, Kubelet},
    machine,
};
use vm::Vm;

/// A runtime that is ready; a private one is gone with it.
#[derive(Debug)]
pub struct Node {
    socket: PathBuf,
    driver: Driver,
    runtime: Runtime,
}

#[derive(Debug)]
enum Runtime {
    Private(Box<Containerd>),
    Vm(Box<Vm>),
}

impl Node {
    pub fn start() -> Result<Self> {
        Self::start_with(&Options::default())
    }

    /// One whose pods get their addresses from the plugin that finds them through the network namespace.
    pub fn start_keyed(faults: Faults) -> Result<Self> {
        Self::start_with(&Options { keyed: true, faults, ..Options::default() })
    }

    /// Where this is a VM of ours, nothing but the plugin is as the options say.
    pub fn start_with(options: &Options) -> Result<Self> {
        let node = if is_in_path(vm::START) {
            let vm = Vm::start(options)?;
            Self {
                socket: PathBuf::from(vm::SOCKET),
                driver: vm.driver(),
                runtime: Runtime::Vm(Box::new(vm)),
            }
        } else {
            let containerd = Containerd::start(options)?;
            let socket = containerd.socket().to_owned();
            let runtime = Runtime::Private(Box::new(containerd));
            Self { socket, driver: options.cgroup_driver, runtime }
        };
        wait_recovered(&node.socket)?;
        Ok(node)
    }

    pub fn kubelet(&self) -> Result<Kubelet> {
        Kubelet::new(&self.socket, self.driver)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// False for a VM's own.
    pub fn is_private(&self) -> bool {
        matches!(self.runtime, Runtime::Private(_))
    }

    pub fn network(&self) -> &Network {
        match &self.runtime {
            Runtime::Private(containerd) => containerd.network(),
            Runtime::Vm(vm) => vm.network(),
        }
    }

    /// Other faults of the plugin from now on.
    pub fn set_faults(&mut self, faults: Faults) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.set_faults(faults),
            Runtime::Vm(vm) => vm.set_faults(faults),
        }
    }

    /// Ends the runtime in order; its pods go on.
    pub fn end_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.end_runtime(),
            Runtime::Vm(_) => vm::end_runtime(nix::sys::signal::SIGTERM),
        }
    }

    /// Ends the runtime as the OOM killer does; its pods go on.
    pub fn kill_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.kill_runtime(),
            Runtime::Vm(_) => vm::end_runtime(nix::sys::signal::SIGKILL),
        }
    }

    /// Removes all that an ended runtime knew, its containers with it.
    pub fn forget(&mut self) -> Result<()> {
        match &self.runtime {
            Runtime::Private(containerd) => containerd.forget(),
            Runtime::Vm(_) => vm::forget(),
        }
    }

    /// Starts one that has ended.
    pub fn start_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.start_runtime(),
            Runtime::Vm(vm) => vm.start_runtime(),
        }
        .context("start the runtime again")?;
        wait_recovered(&self.socket)
    }

    /// Leaves a VM's as it is, with its pods and its network: for the next boot.
    pub fn leave(self) -> Result<()> {
        match self.runtime {
            Runtime::Private(_) => bail!("a private runtime ends with this program"),
            Runtime::Vm(vm) => {
                vm.leave();
                Ok(())
            }
        }
    }

    /// Ends a private runtime, and gives a VM's its own network back; says what would not go.
    pub fn stop(self) -> Result<()> {
        match self.runtime {
            Runtime::Private(containerd) => containerd.stop(),
            Runtime::Vm(vm) => vm.stop(),
        }
    }
}

/// Until the runtime has read what it had on record: before, it serves its version and nothing else.
fn wait_recovered(socket: &Path) -> Result<()> {
    clock::poll("the runtime's sandboxes", machine::patience(), || {
        Ok(Cri::connect(socket).and_then(|mut cri| cri.list_pod_sandbox()).ok())
    })
    .map(drop)
}

fn is_in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).exists())
}
