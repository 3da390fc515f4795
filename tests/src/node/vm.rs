//! A VM's own containerd. Only the tests use it, so they may add to what is installed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    clock, command,
    containerd::{self, Conflist, Keyed, Network, Options, Place},
    keyed::{self, Faults},
    kubelet::Driver,
    program,
};

/// The command with which the tests' VMs start containerd. No other machine has it.
pub(super) const START: &str = "start-containerd";
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

pub(super) const PLUGINS: &str = "/usr/lib/cni";
/// containerd uses the first configuration file. This one comes before the VM's own.
pub(super) const CONFLIST: &str = "/etc/cni/net.d/00-keyed.conflist";
const STORE: &str = "/var/lib/keyed/addresses";
/// The name and the subnet of the VM's own network.
const OWN: (&str, &str) = ("pods", "10.88.0.0/16");
const SUBNET: &str = "10.99.0.0/16";

#[derive(Debug)]
pub(super) struct Vm {
    driver: Driver,
    network: Network,
    conflist: Option<Conflist>,
}

impl Vm {
    /// Starts the runtime, with the tests' own plugin if the options say so.
    pub(super) fn start(options: &Options) -> Result<Self> {
        let under_systemd = Path::new("/run/systemd/system").exists();
        let driver = if under_systemd { Driver::Systemd } else { Driver::Cgroupfs };
        let keyed = options.keyed.then(|| Keyed {
            store: PathBuf::from(STORE),
            faults: options.faults,
            pod_faults: options.pod_faults.clone(),
        });
        let (name, subnet) = if keyed.is_some() { (keyed::TYPE, SUBNET) } else { OWN };
        let network = Network {
            name: name.to_owned(),
            bridge: if keyed.is_some() { String::new() } else { "cni0".to_owned() },
            subnets: vec![subnet.to_owned()],
            keyed,
            has_broker: false,
        };
        let mut vm = Self { driver, network, conflist: None };
        vm.start_runtime()?;
        if vm.network.keyed.is_some() {
            install()?;
            vm.network.make_store()?;
            // The guard exists before the file.
            let conflist = vm.conflist.insert(Conflist::new(PathBuf::from(CONFLIST), Path::new(SOCKET)));
            conflist.put(&vm.network)?;
        }
        Ok(vm)
    }

    pub(super) fn driver(&self) -> Driver {
        self.driver
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn set_faults(&mut self, faults: Faults) -> Result<()> {
        let keyed = self.network.keyed.as_mut().context("the network does not use the tests' own plugin")?;
        keyed.faults = faults;
        self.conflist
            .as_ref()
            .context("the network has no configuration file of the tests")?
            .put(&self.network)
    }

    pub(super) fn start_runtime(&self) -> Result<()> {
        let driver = if self.driver == Driver::Systemd { "systemd" } else { "cgroupfs" };
        command::run(START, &[driver])
    }

    pub(super) fn leave(mut self) {
        self.conflist = None;
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.withdraw()
    }

    fn withdraw(&mut self) -> Result<()> {
        let Some(conflist) = self.conflist.take() else { return Ok(()) };
        conflist.withdraw(&self.network)?;
        let data = Path::new(STORE).parent().context("the store has no directory")?;
        fs::remove_dir_all(data).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error).with_context(|| format!("remove {}", data.display())),
        })
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // An error in drop cannot be reported. `stop` reports errors.
        let _ = self.withdraw();
    }
}

fn install() -> Result<()> {
    let at = Path::new(PLUGINS).join(keyed::TYPE);
    if at.exists() {
        return Ok(());
    }
    symlink(program::path(keyed::TYPE)?, &at).with_context(|| format!("make {}", at.display()))
}

pub(super) fn end_runtime(signal: Signal) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    for pid in running("containerd")? {
        match kill(pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("end containerd"),
        }
    }
    clock::poll("end of containerd", LIMIT, || Ok(running("containerd")?.is_empty().then_some(())))
}

/// Removes the data of the VM's containerd, which has the same directories as a private one.
pub(super) fn forget() -> Result<()> {
    let (state, root) = (PathBuf::from("/run/containerd"), PathBuf::from("/var/lib/containerd"));
    let known = [root.clone(), state.clone()];
    containerd::forget(&Place { name: "vm".to_owned(), state, root }, &known)
}

/// Returns the live processes with this name.
fn running(name: &str) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list the processes")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The line is PID (NAME) STATE …
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, fields)) = stat.split_once(&format!("({name}) ")) else { continue };
        if !fields.starts_with('Z') {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
