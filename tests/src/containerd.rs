//! A private containerd on this machine. It runs real pods and touches nothing of the host's own.
//!
//! Its image store, state, socket, network, bridge and runc root are its own. The following things are shared
//! with the host, under names of the private containerd. Dropping the guard removes them too:
//! * `/run/netns/cni-*` and `/run/containerd/s/*`, where containerd and its shims always put these;
//! * `/var/lib/cni/{results,networks}`, where CNI has its cache and its addresses, under the private
//!   network's name;
//! * the iptables chains of the private network's pods, and the forwarding switch that a bridge turns on.
//!
//! A killed run leaves these behind, and the next start removes them. The lock of a dead run is free. Two
//! things may stay. The empty nat table of iptables stays if there is no `nft` to remove it. A network
//! namespace stays if containerd was killed before or right after its CNI call, because nothing shows its
//! owner.

mod before;
mod config;
mod conflist;
mod network;
mod plugin;
mod pods;
mod residue;
mod restart;
mod sweep;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use nix::{sys::signal::Signal, unistd::Pid};

pub(crate) use conflist::Conflist;
pub use network::{Keyed, Network};
pub(crate) use pods::PodTrace;
pub(crate) use sweep::forget;

use crate::{clock, command, cri::Cri, image::Image, keyed::Faults, kubelet::Driver};
use before::Before;

/// A first start under software emulation takes half a minute.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(30);

/// The settings of a private containerd.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// The directory of containerd, ctr and runc, searched before the PATH
    #[arg(long)]
    pub binaries: Option<PathBuf>,
    /// The cgroup driver
    #[arg(long, env = "CRI_CGROUP_DRIVER", value_enum, default_value_t)]
    pub cgroup_driver: Driver,
    /// Static program for the sandbox's image [default: the one built with this program]
    #[arg(long)]
    pub pause: Option<PathBuf>,
    /// Static program for all other containers [default: /bin/busybox]
    #[arg(long)]
    pub busybox: Option<PathBuf>,
    /// Give pods an IPv6 address too
    #[arg(long)]
    pub dual_stack: bool,
    /// Use a CNI plugin that finds addresses through the network namespace, and so leaks some
    #[arg(long, conflicts_with = "dual_stack")]
    pub keyed: bool,
    /// Give pods two networks, by a plugin that calls other plugins as Multus does
    #[arg(long, conflicts_with_all = ["dual_stack", "keyed"])]
    pub broker: bool,
    /// The faults of the plugin of `keyed`.
    #[arg(skip)]
    pub faults: Faults,
    /// The faults of that plugin for pods of these names.
    #[arg(skip)]
    pub pod_faults: BTreeMap<String, Faults>,
    /// Length of the prefix from which pods get their IPv4 addresses, of 22 bits or more
    #[arg(skip)]
    pub prefix: Option<u32>,
}

/// The paths of one containerd. All are derived from its name, so that those of a killed run can be found.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// State and sockets, in memory like those of the system's containerd.
    pub(crate) state: PathBuf,
    /// Images, on disk like those of the system's containerd.
    pub(crate) root: PathBuf,
}

/// The path of Debian's busybox-static, and of busybox in most other distributions.
const BUSYBOX: &str = "/bin/busybox";

const STATES: &str = "/run/sandprobe-node";
const ROOTS: &str = "/var/lib/sandprobe-node";

/// A running containerd. Dropping it removes its pods, its processes and all traces.
#[derive(Debug)]
pub struct Containerd {
    place: Place,
    options: Options,
    process: Child,
    network: Network,
    socket: PathBuf,
    /// Held until the end. It shows other runs that this one lives.
    _lock: File,
}

impl Containerd {
    /// Starts a containerd, ready to run pods.
    pub fn start(options: &Options) -> Result<Self> {
        sweep_dead_runs()?;
        let place = Place::new(format!("{:x}", std::process::id()));
        for directory in [&place.pods(), &place.root] {
            fs::create_dir_all(directory)
                .with_context(|| format!("make {}; root is needed", directory.display()))?;
        }
        let lock = File::create(place.lock())?;
        lock.try_lock().context("lock the state directory")?;
        match Self::start_in(&place, options) {
            Ok((process, network)) => {
                let socket = place.socket();
                let options = options.clone();
                let mut started = Self { place, options, process, network, socket, _lock: lock };
                // From here on the guard cleans up.
                started.wait_ready()?;
                started.import_images()?;
                Ok(started)
            }
            Err(error) => {
                sweep::sweep(&place);
                Err(error)
            }
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the pid of the containerd process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the directory with the bundles of running containers.
    pub fn state(&self) -> PathBuf {
        self.place.containerd_state()
    }

    /// Its own folder of plugins, if it has one.
    #[must_use]
    pub fn plugins(&self) -> Option<PathBuf> {
        Some(self.place.plugins()).filter(|folder| folder.is_dir())
    }

    /// Returns the file of its CNI configuration.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.place.conflist()
    }

    /// Returns the log so far.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.place.log()).context("read containerd's log")
    }

    /// Removes everything. The error lists what could not be removed.
    pub fn stop(mut self) -> Result<()> {
        let problems = self.shut_down();
        if problems.is_empty() {
            return Ok(());
        }
        bail!("the private containerd left something behind: {}", problems.join("; "))
    }

    fn start_in(place: &Place, options: &Options) -> Result<(Child, Network)> {
        let prefix = options.prefix.unwrap_or(network::PREFIX);
        let mut network = Network::private(place.network_name(), place.bridge(), prefix, options.dual_stack)?;
        let mut plugins = config::plugins();
        if options.keyed {
            plugins = plugin::gather(&plugins, place.plugins())?;
            network.keyed = Some(Keyed {
                store: place.addresses(),
                faults: options.faults,
                pod_faults: options.pod_faults.clone(),
            });
            network.make_store()?;
        }
        if options.broker {
            plugins = plugin::gather(&plugins, place.plugins())?;
            plugin::add_broker(&plugins, &network, &place.root.join("second"))?;
            network.has_broker = true;
        }
        let version = config::Version::of(&program(options, "containerd"))?;
        Before::take()?.save(&place.before())?;
        fs::create_dir_all(place.cni_configuration())?;
        fs::write(place.conflist(), network.conflist().to_string())?;
        let configuration = config::text(version, place, &plugins, options.cgroup_driver);
        fs::write(place.configuration(), configuration)?;
        Ok((spawn(place, options)?, network))
    }

    fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket.clone();
        let outcome = clock::poll("containerd ready", START, || {
            if let Some(status) = self.process.try_wait()? {
                bail!("containerd ended with {status}");
            }
            // The connection is refused until the socket listens, and the call is unimplemented until the CRI
            // plugin is loaded.
            Ok(Cri::connect(&socket).and_then(|mut cri| cri.version()).ok())
        });
        outcome
            .map(drop)
            .with_context(|| format!("its log ends with: {}", last_lines(&self.log().unwrap_or_default())))
    }

    /// Imports both images at the same time.
    fn import_images(&self) -> Result<()> {
        let options = &self.options;
        let pause = options.pause.clone().map_or_else(|| beside_this_program("pause"), Ok)?;
        let busybox = options.busybox.as_deref().unwrap_or(Path::new(BUSYBOX));
        let images = [("pause", Image::pause(&pause)), ("busybox", Image::busybox(busybox)?)];
        thread::scope(|scope| {
            let imports = images.map(|(name, image)| scope.spawn(move || self.import(name, &image)));
            imports
                .into_iter()
                .try_for_each(|import| import.join().map_err(|_panic| anyhow!("an import panicked"))?)
        })
    }

    fn import(&self, name: &str, image: &Image) -> Result<()> {
        let archive = self.place.root.join(format!("{name}.tar"));
        image.write(&archive)?;
        let (socket, archive) = (path_text(&self.socket)?, path_text(&archive)?);
        command::run(
            path_text(&program(&self.options, "ctr"))?,
            &["--address", socket, "--namespace", "k8s.io", "images", "import", archive],
        )
    }

    /// Ends the pods as the kubelet does, then containerd, then sweeps. Returns what could not be removed.
    fn shut_down(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        if matches!(self.process.try_wait(), Ok(None)) {
            problems.extend(remove_pods(&self.socket).err().map(|error| format!("{error:#}")));
            problems.extend(self.end_process().err().map(|error| format!("{error:#}")));
        }
        problems.extend(sweep::sweep(&self.place));
        problems
    }

    fn end_process(&mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        nix::sys::signal::kill(pid, Signal::SIGTERM).context("end containerd")?;
        let ended = clock::poll("end of containerd", STOP, || Ok(self.process.try_wait()?));
        if ended.is_err() {
            self.process.kill().context("kill containerd")?;
            self.process.wait().context("wait for containerd")?;
        }
        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // After `stop` the directory is gone and there is nothing to do. An error in drop cannot be reported.
        if self.place.state.exists() {
            self.shut_down();
        }
    }
}

impl Place {
    fn new(name: String) -> Self {
        Self { state: Path::new(STATES).join(&name), root: Path::new(ROOTS).join(&name), name }
    }

    fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    fn before(&self) -> PathBuf {
        self.state.join("before.json")
    }

    /// The directory of the notes of pods that kubelets made.
    fn pods(&self) -> PathBuf {
        self.state.join("pods")
    }

    fn socket(&self) -> PathBuf {
        self.state.join("containerd.sock")
    }

    fn log(&self) -> PathBuf {
        self.state.join("containerd.log")
    }

    fn configuration(&self) -> PathBuf {
        self.state.join("config.toml")
    }

    fn cni_configuration(&self) -> PathBuf {
        self.state.join("cni")
    }

    fn conflist(&self) -> PathBuf {
        self.cni_configuration().join("10-sandprobe.conflist")
    }

    fn plugins(&self) -> PathBuf {
        self.state.join("plugins")
    }

    /// Returns the directory of the addresses of the tests' own plugin.
    fn addresses(&self) -> PathBuf {
        self.root.join("addresses")
    }

    fn containerd_root(&self) -> PathBuf {
        self.root.join("containerd")
    }

    fn containerd_state(&self) -> PathBuf {
        self.state.join("state")
    }

    fn runc_root(&self) -> PathBuf {
        self.state.join("runc")
    }

    fn network_name(&self) -> String {
        format!("sandprobe-{}", self.name)
    }

    /// An interface's name has at most 15 bytes. A process id has up to 6 hexadecimal digits.
    fn bridge(&self) -> String {
        format!("spr{}", self.name)
    }
}

fn spawn(place: &Place, options: &Options) -> Result<Child> {
    let log =
        OpenOptions::new().create(true).append(true).open(place.log()).context("open containerd's log")?;
    let mut command = Command::new(program(options, "containerd"));
    command
        .arg("--config")
        .arg(place.configuration())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if let Some(path) = search_path(options)? {
        command.env("PATH", path);
    }
    // containerd is in another process group, so that ctrl-C reaches only this program, which then stops
    // containerd normally.
    command.process_group(0).spawn().context("start containerd; is it installed?")
}

/// Stops and removes every sandbox, so that CNI DEL is called for each.
fn remove_pods(socket: &Path) -> Result<()> {
    let mut cri = Cri::connect(socket)?;
    for sandbox in cri.list_pod_sandbox()? {
        cri.stop_pod_sandbox(&sandbox.id)?;
        cri.remove_pod_sandbox(&sandbox.id)?;
    }
    Ok(())
}

/// Removes what killed runs left behind. Their locks are free.
fn sweep_dead_runs() -> Result<()> {
    let Ok(entries) = fs::read_dir(STATES) else { return Ok(()) };
    for entry in entries {
        let place = Place::new(entry?.file_name().to_string_lossy().into_owned());
        let Ok(lock) = File::open(place.lock()) else { continue };
        match lock.try_lock() {
            Ok(()) => report_left(&sweep::sweep(&place)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("look at the lock of another run"),
        }
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "what stays makes later tests fail")]
fn report_left(problems: &[String]) {
    for problem in problems {
        eprintln!("left by a killed run: {problem}");
    }
}

fn program(options: &Options, name: &str) -> PathBuf {
    options.binaries.as_ref().map_or_else(|| PathBuf::from(name), |directory| directory.join(name))
}

/// containerd finds its shim, and the shim finds runc, by the `PATH`.
fn search_path(options: &Options) -> Result<Option<std::ffi::OsString>> {
    let Some(directory) = &options.binaries else { return Ok(None) };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.clone()).chain(std::env::split_paths(&path));
    Ok(Some(std::env::join_paths(all).context("a directory in the PATH contains a colon")?))
}

/// Returns a program that cargo built with this one. It is beside this one, or one level up from a test.
fn beside_this_program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("find the running program")?;
    let found =
        this.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.exists());
    found.with_context(|| format!("{name} is not beside {}: build the tests' programs first", this.display()))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn last_lines(log: &str) -> String {
    const KEPT: usize = 5;
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(KEPT)..].join(" | ")
}
