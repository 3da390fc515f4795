//! A node to run pods on: a VM's own containerd if this machine is one of the tests' VMs, otherwise a private
//! one.

mod vm;

use std::{
    env, fs,
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

/// A runtime that is ready. A private one is removed when this is dropped.
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

    /// Returns a node whose pods get their addresses from the tests' own plugin, which finds them through the
    /// network namespace.
    pub fn start_keyed(faults: Faults) -> Result<Self> {
        Self::start_with(&Options { keyed: true, faults, ..Options::default() })
    }

    /// Starts a node with these options. On a VM only the options of the plugin count.
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

    /// Whether the runtime is private. False for a VM's own.
    pub fn is_private(&self) -> bool {
        matches!(self.runtime, Runtime::Private(_))
    }

    pub fn network(&self) -> &Network {
        match &self.runtime {
            Runtime::Private(containerd) => containerd.network(),
            Runtime::Vm(vm) => vm.network(),
        }
    }

    /// Sets other faults of the plugin from now on.
    pub fn set_faults(&mut self, faults: Faults) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.set_faults(faults),
            Runtime::Vm(vm) => vm.set_faults(faults),
        }
    }

    /// Returns the file of the CNI configuration of a node with the tests' own plugin.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        match &self.runtime {
            Runtime::Private(containerd) => containerd.conflist(),
            Runtime::Vm(_) => PathBuf::from(vm::CONFLIST),
        }
    }

    /// Takes the executable of a plugin out of the runtime's folder.
    pub fn hide_plugin(&self, name: &str) -> Result<()> {
        let folder = self.plugins()?;
        fs::rename(folder.join(name), folder.join(hidden(name))).with_context(|| format!("hide {name}"))
    }

    /// Puts the executable of a plugin back.
    pub fn show_plugin(&self, name: &str) -> Result<()> {
        let folder = self.plugins()?;
        fs::rename(folder.join(hidden(name)), folder.join(name)).with_context(|| format!("show {name}"))
    }

    /// Returns the runtime's own folder of plugins.
    fn plugins(&self) -> Result<PathBuf> {
        match &self.runtime {
            Runtime::Private(containerd) => {
                containerd.plugins().context("its plugins are those of this machine")
            }
            Runtime::Vm(_) => Ok(PathBuf::from(vm::PLUGINS)),
        }
    }

    /// Ends the runtime normally. Its pods run on.
    pub fn end_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.end_runtime(),
            Runtime::Vm(_) => vm::end_runtime(nix::sys::signal::SIGTERM),
        }
    }

    /// Kills the runtime as the OOM killer does. Its pods run on.
    pub fn kill_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.kill_runtime(),
            Runtime::Vm(_) => vm::end_runtime(nix::sys::signal::SIGKILL),
        }
    }

    /// Removes everything that an ended runtime knew, and its containers.
    pub fn forget(&mut self) -> Result<()> {
        match &self.runtime {
            Runtime::Private(containerd) => containerd.forget(),
            Runtime::Vm(_) => vm::forget(),
        }
    }

    /// Starts an ended runtime again.
    pub fn start_runtime(&mut self) -> Result<()> {
        match &mut self.runtime {
            Runtime::Private(containerd) => containerd.start_runtime(),
            Runtime::Vm(vm) => vm.start_runtime(),
        }
        .context("start the runtime again")?;
        wait_recovered(&self.socket)
    }

    /// Leaves a VM's runtime as it is, with its pods and its network, for the next boot.
    pub fn leave(self) -> Result<()> {
        match self.runtime {
            Runtime::Private(_) => bail!("a private runtime ends with this program"),
            Runtime::Vm(vm) => {
                vm.leave();
                Ok(())
            }
        }
    }

    /// Ends a private runtime, or restores a VM's own network. The error lists what could not be removed.
    pub fn stop(self) -> Result<()> {
        match self.runtime {
            Runtime::Private(containerd) => containerd.stop(),
            Runtime::Vm(vm) => vm.stop(),
        }
    }
}

/// Returns the name of a plugin's executable while the runtime is not to find it.
fn hidden(name: &str) -> String {
    format!("hidden-{name}")
}

/// Waits until the runtime has read its records. Before that it answers only Version.
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
