//! The container runtimes, their helpers and the distributions of Kubernetes that a node may have. Each is
//! one row: what this project knows of it by name, and by path where it was not configured otherwise, is
//! there and nowhere else. The readers of the files behind the paths know their forms.
//!
//! Sources: containerd (`defaults/defaults_unix.go`, `core/runtime/v2`), CRI-O (`pkg/config/config.go`,
//! `internal/config/cgmgr`), Moby (`daemon/config`), cri-dockerd (`cmd/cri/options`), containers/storage
//! (`types/options.go`), k3s and RKE2 (`pkg/agent/config`, `pkg/agent/containerd`), k0s (`pkg/constant`),
//! MicroK8s (`microk8s-resources`), and each project's units of systemd.

/// A runtime whose records of sandboxes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Kind {
    Containerd,
    Crio,
    /// Through cri-dockerd, or the kubelet's own dockershim.
    Docker,
    Isulad,
}

/// A program that makes containers by means of other programs, for a kubelet or for a person.
///
/// The first path in a list is the project's default.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// The name as its project writes it.
    pub name: &'static str,
    /// The runtime that the kubelet can be told to use; `None` for a runtime for people.
    pub kind: Option<Kind>,
    /// The comm of its program, which calls CNI plugins and ends containers.
    pub daemon: &'static str,
    /// The comm of the program that serves CRI for it, if that is another program.
    pub cri_server: Option<&'static str>,
    /// Runtimes that have their containers made by this one.
    pub serves: &'static [Kind],
    /// Whether it writes its record of a sandbox after the sandbox's network namespace is made.
    pub records_last: bool,
    /// Arguments with which its program does not serve but does something else.
    pub commands: &'static [&'static str],
    /// The prefix of a container's scope with the systemd driver; the id follows. The cgroupfs driver names a
    /// directory by the bare id.
    pub cgroup_prefix: &'static str,
    /// Its configuration, and the folders of files that are read after it.
    pub configuration: &'static [&'static str],
    pub drop_ins: &'static [&'static str],
    /// Where it keeps what survives a reboot.
    pub roots: &'static [&'static str],
    /// Where it keeps what does not survive one, in the form of a root.
    pub run_roots: &'static [&'static str],
    /// A file that it keeps open below its root as long as it runs.
    pub database: Option<&'static str>,
    /// Where its containerd keeps the bundles of tasks.
    pub states: &'static [&'static str],
    /// Where its OCI runtime keeps a folder for each container.
    pub oci_states: &'static [&'static str],
    /// Where CRI is served.
    pub sockets: &'static [&'static str],
    /// Where it mounts network namespaces, if not at [`NETNS`].
    pub netns: &'static [&'static str],
    /// Where it, or the init system for it, writes its log, if not to the journal.
    pub logs: &'static [&'static str],
    /// Its units of systemd, without `.service`.
    pub units: &'static [&'static str],
    /// The Debian packages that contain it.
    pub packages: &'static [&'static str],
}

/// How the arguments of a helper name its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `runc … create --bundle DIR ID`.
    Oci,
    /// `containerd-shim-runc-v2 … -id ID start`; the shim's kind follows the name.
    Shim,
    /// `conmon -c ID -n NAME`.
    Conmon,
    /// `isulad-shim ID BUNDLE RUNTIME …`, both to make a container and to execute a program in one.
    IsuladShim,
}

/// A program that a runtime executes for one container.
#[derive(Clone, Copy, Debug)]
pub struct Helper {
    /// Its comm, and the name of its file; a shim's name is longer.
    pub name: &'static str,
    /// `None`: its arguments name no container.
    pub form: Option<Form>,
    /// Whether it stays as long as the container does.
    pub stays: bool,
    /// The names by which it is a container's first program, before it executes the container's own.
    pub inits: &'static [&'static str],
    /// Whether the programs of its containers are not processes of the node: a virtual machine runs them, or
    /// a kernel that is itself a process.
    pub hides_programs: bool,
    /// The names by which it stays as a container's first process, and hides the container's programs.
    pub hiders: &'static [&'static str],
    /// The Debian packages that contain it.
    pub packages: &'static [&'static str],
}

/// Kubernetes as somebody installs it, with paths and programs of its own.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// The name as its project writes it.
    pub name: &'static str,
    /// The comms of the processes that contain a kubelet. In one program with the caller of CNI they call
    /// plugins too.
    pub kubelets: &'static [&'static str],
    /// The comms of the processes that start a kubelet and supervise it.
    pub supervisors: &'static [&'static str],
    pub kubelet_roots: &'static [&'static str],
    /// The roots of its containerd.
    pub containerd_roots: &'static [&'static str],
    pub containerd_states: &'static [&'static str],
    pub sockets: &'static [&'static str],
    /// The folders of the CNI configuration.
    pub networks: &'static [&'static str],
    pub logs: &'static [&'static str],
    /// Its units of systemd in which a kubelet or a runtime runs, without `.service`.
    pub units: &'static [&'static str],
    /// The Debian packages that contain its kubelet and CNI's plugins.
    pub packages: &'static [&'static str],
}

/// Where network namespaces are mounted, by iproute2 and most runtimes.
pub const NETNS: &str = "/run/netns";
/// The files of syslog, on Debian and Ubuntu, and on Red Hat and SUSE. Any user can have a line written to
/// them.
pub const SYSLOG: [&str; 2] = ["/var/log/syslog", "/var/log/messages"];
/// libcni's cache of results (`libcni`, `CacheDir`).
pub const CNI_CACHE: &str = "/var/lib/cni/results";
/// host-local's store if a network names none (`plugins/ipam/host-local/backend/disk`).
pub const HOST_LOCAL: &str = "/var/lib/cni/networks";
/// containerd's CRI plugin, in configurations of version 2 and in the root; then in configurations of version
/// 3.
pub const CRI_PLUGINS: [&str; 2] = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];
/// The comm of a kubelet that is a program by itself.
pub const KUBELET: &str = "kubelet";
/// The CNI project's own tool, which calls plugins and is not a runtime.
pub const CNITOOL: &str = "cnitool";

/// The defaults of a row.
const RUNTIME: Runtime = Runtime {
    name: "",
    kind: None,
    daemon: "",
    cri_server: None,
    serves: &[],
    records_last: false,
    commands: &[],
    cgroup_prefix: "",
    configuration: &[],
    drop_ins: &[],
    roots: &[],
    run_roots: &[],
    database: None,
    states: &[],
    oci_states: &[],
    sockets: &[],
    netns: &[],
    logs: &[],
    units: &[],
    packages: &[],
};
const HELPER: Helper = Helper {
    name: "",
    form: None,
    stays: false,
    inits: &[],
    hides_programs: false,
    hiders: &[],
    packages: &[],
};
const DISTRIBUTION: Distribution = Distribution {
    name: "",
    kubelets: &[],
    supervisors: &[],
    kubelet_roots: &[],
    containerd_roots: &[],
    containerd_states: &[],
    sockets: &[],
    networks: &[],
    logs: &[],
    units: &[],
    packages: &[],
};

pub const CONTAINERD: Runtime = Runtime {
    name: "containerd",
    kind: Some(Kind::Containerd),
    daemon: "containerd",
    serves: &[Kind::Docker],
    records_last: true,
    commands: &["config", "publish", "oci-hook", "help", "--help", "-h", "--version", "-v"],
    cgroup_prefix: "cri-containerd-",
    configuration: &["/etc/containerd/config.toml"],
    roots: &["/var/lib/containerd"],
    database: Some("io.containerd.metadata.v1.bolt/meta.db"),
    states: &["/run/containerd"],
    oci_states: &["/run/containerd/runc/k8s.io"],
    sockets: &["/run/containerd/containerd.sock"],
    logs: &["/var/log/containerd.log", "/var/log/containerd/containerd.log"],
    units: &["containerd"],
    packages: &["containerd", "containerd.io", "moby-containerd"],
    ..RUNTIME
};

/// Podman uses its storage too.
pub const CRIO: Runtime = Runtime {
    name: "CRI-O",
    kind: Some(Kind::Crio),
    daemon: "crio",
    commands: &[
        "config",
        "wipe",
        "status",
        "check",
        "version",
        "complete",
        "completion",
        "help",
        "--help",
        "-h",
        "--version",
        "-v",
    ],
    cgroup_prefix: "crio-",
    configuration: &["/etc/crio/crio.conf"],
    drop_ins: &["/etc/crio/crio.conf.d"],
    roots: &["/var/lib/containers/storage"],
    run_roots: &["/run/containers/storage"],
    oci_states: &["/run/runc", "/run/crun"],
    sockets: &["/run/crio/crio.sock"],
    logs: &["/var/log/crio/crio.log", "/var/log/crio.log"],
    units: &["crio"],
    packages: &["cri-o"],
    ..RUNTIME
};

pub const DOCKER: Runtime = Runtime {
    name: "Docker",
    kind: Some(Kind::Docker),
    daemon: "dockerd",
    cri_server: Some("cri-dockerd"),
    cgroup_prefix: "docker-",
    configuration: &["/etc/docker/daemon.json"],
    roots: &["/var/lib/docker"],
    database: Some("network/files/local-kv.db"),
    states: &["/run/docker/containerd/daemon", "/run/docker/containerd"],
    oci_states: &["/run/docker/runtime-runc/moby"],
    sockets: &["/run/cri-dockerd.sock"],
    netns: &["/run/docker/netns"],
    units: &["docker", "cri-docker"],
    packages: &["cri-dockerd", "docker-ce", "docker.io", "moby-engine"],
    ..RUNTIME
};

/// openEuler's runtime, with OCI runtimes by shims of its own, or with LXC. Not tested on a node: this is
/// what its public documentation says (`docs/manual/k8s_integration.md`, `docs/vs_other_engines`,
/// `docs/design/detailed/Runtime`, `src/contrib/config/daemon.json`).
pub const ISULAD: Runtime = Runtime {
    name: "iSulad",
    kind: Some(Kind::Isulad),
    daemon: "isulad",
    cgroup_prefix: "isulad-",
    configuration: &["/etc/isulad/daemon.json"],
    roots: &["/var/lib/isulad"],
    sockets: &["/run/isulad.sock"],
    units: &["isulad"],
    ..RUNTIME
};

pub const RUNTIMES: [Runtime; 6] = [
    CONTAINERD,
    CRIO,
    DOCKER,
    ISULAD,
    Runtime { name: "podman", daemon: "podman", cgroup_prefix: "libpod-", ..RUNTIME },
    Runtime { name: "nerdctl", daemon: "nerdctl", cgroup_prefix: "nerdctl-", ..RUNTIME },
];

/// containerd's shims, by the beginning of their name: the kernel cuts a comm there too.
pub const SHIM: Helper = Helper { name: "containerd-shim", form: Some(Form::Shim), stays: true, ..HELPER };
/// The shims whose containers' programs are processes of the node. For any other shim they are not, or it is
/// not known: Kata Containers (`containerd-shim-kata-v2`), firecracker-containerd
/// (`containerd-shim-aws-firecracker`), gVisor (`containerd-shim-runsc-v1`), WebAssembly that runs in its
/// shim (`containerd-shim-wasmtime-v1`).
pub const PROCESS_SHIMS: [&str; 3] =
    ["containerd-shim", "containerd-shim-runc-v1", "containerd-shim-runc-v2"];
pub const CONMON: Helper = Helper { name: "conmon", form: Some(Form::Conmon), stays: true, ..HELPER };

pub const HELPERS: [Helper; 10] = [
    SHIM,
    CONMON,
    Helper { name: "isulad-shim", form: Some(Form::IsuladShim), stays: true, ..HELPER },
    // It learns its containers over a socket.
    Helper { name: "conmonrs", stays: true, ..HELPER },
    // A helper of CRI-O: it pins namespaces.
    Helper { name: "pinns", ..HELPER },
    // It executes a copy of itself, `/proc/self/exe` (`libcontainer/dmz`).
    Helper { name: "runc", form: Some(Form::Oci), inits: &["runc", "exe"], packages: &["runc"], ..HELPER },
    Helper { name: "crun", form: Some(Form::Oci), inits: &["crun"], ..HELPER },
    Helper { name: "youki", form: Some(Form::Oci), inits: &["youki"], ..HELPER },
    // gVisor's runtime. Its kernel and its file server are processes of its own program under other names
    // (`runsc/sandbox`, `runsc/container`).
    Helper {
        name: "runsc",
        form: Some(Form::Oci),
        hides_programs: true,
        hiders: &["runsc-sandbox", "runsc-gofer"],
        ..HELPER
    },
    Helper { name: "kata-runtime", form: Some(Form::Oci), hides_programs: true, ..HELPER },
];

pub const DISTRIBUTIONS: [Distribution; 5] = [
    // As with kubeadm, kind and minikube: everything is where its own project puts it.
    Distribution {
        name: "Kubernetes",
        kubelets: &[KUBELET],
        kubelet_roots: &["/var/lib/kubelet"],
        networks: &["/etc/cni/net.d"],
        logs: &["/var/log/kubelet.log", "/var/log/kubelet/kubelet.log"],
        units: &["kubelet"],
        packages: &["containernetworking-plugins", "kubelet", "kubernetes-cni", "kubernetes-node"],
        ..DISTRIBUTION
    },
    Distribution {
        name: "k3s",
        kubelets: &["k3s-server", "k3s-agent"],
        supervisors: &["k3s"],
        containerd_roots: &["/var/lib/rancher/k3s/agent/containerd"],
        containerd_states: &["/run/k3s/containerd"],
        sockets: &["/run/k3s/containerd/containerd.sock"],
        networks: &["/var/lib/rancher/k3s/agent/etc/cni/net.d"],
        logs: &["/var/lib/rancher/k3s/agent/containerd/containerd.log"],
        units: &["k3s", "k3s-agent"],
        ..DISTRIBUTION
    },
    // It has k3s' state and socket.
    Distribution {
        name: "RKE2",
        supervisors: &["rke2"],
        containerd_roots: &["/var/lib/rancher/rke2/agent/containerd"],
        networks: &["/var/lib/rancher/rke2/agent/etc/cni/net.d"],
        logs: &[
            "/var/lib/rancher/rke2/agent/containerd/containerd.log",
            "/var/lib/rancher/rke2/agent/logs/kubelet.log",
        ],
        units: &["rke2-server", "rke2-agent"],
        ..DISTRIBUTION
    },
    Distribution {
        name: "k0s",
        supervisors: &["k0s"],
        kubelet_roots: &["/var/lib/k0s/kubelet"],
        containerd_roots: &["/var/lib/k0s/containerd"],
        containerd_states: &["/run/k0s/containerd"],
        sockets: &["/run/k0s/containerd.sock"],
        units: &["k0scontroller", "k0sworker"],
        ..DISTRIBUTION
    },
    // Kubelet, API server and the rest are one program.
    Distribution {
        name: "MicroK8s",
        kubelets: &["kubelite"],
        kubelet_roots: &["/var/snap/microk8s/common/var/lib/kubelet"],
        containerd_roots: &["/var/snap/microk8s/common/var/lib/containerd"],
        containerd_states: &["/var/snap/microk8s/common/run/containerd"],
        sockets: &["/var/snap/microk8s/common/run/containerd.sock"],
        networks: &["/var/snap/microk8s/current/args/cni-network"],
        units: &["snap.microk8s.daemon-containerd", "snap.microk8s.daemon-kubelite"],
        ..DISTRIBUTION
    },
];

/// Returns a part of every distribution's row, one after another.
pub fn of_distributions<T: 'static>(
    part: impl Fn(&'static Distribution) -> &'static [T],
) -> impl Iterator<Item = &'static T> {
    const { &DISTRIBUTIONS }.iter().flat_map(part)
}

/// Returns a part of every runtime's row, one after another.
pub fn of_runtimes<T: 'static>(
    part: fn(&'static Runtime) -> &'static [T],
) -> impl Iterator<Item = &'static T> {
    const { &RUNTIMES }.iter().flat_map(part)
}

/// Returns the comms of the runtimes that make sandboxes for a kubelet.
pub fn servers() -> impl Iterator<Item = &'static str> {
    const { &RUNTIMES }.iter().filter(|row| row.kind.is_some()).flat_map(Runtime::programs)
}

/// Returns the comms of the processes that contain a kubelet.
pub fn kubelets() -> impl Iterator<Item = &'static str> {
    of_distributions(|row| row.kubelets).copied()
}

impl Runtime {
    /// Returns whether its program, run with these arguments, does something else than to serve. Shims and
    /// administrators run it so.
    pub fn is_command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> bool {
        arguments.into_iter().any(|argument| self.commands.contains(&argument))
    }

    /// Returns the row of a runtime that a kubelet can use.
    #[must_use]
    pub const fn of(kind: Kind) -> &'static Self {
        match kind {
            Kind::Containerd => &CONTAINERD,
            Kind::Crio => &CRIO,
            Kind::Docker => &DOCKER,
            Kind::Isulad => &ISULAD,
        }
    }

    /// Returns the comms of its programs.
    pub fn programs(&'static self) -> impl Iterator<Item = &'static str> {
        [self.daemon].into_iter().chain(self.cri_server)
    }
}

impl Helper {
    /// Returns the row of the program with this file name.
    #[must_use]
    pub fn of(file: &str) -> Option<&'static Self> {
        const { &HELPERS }.iter().find(|row| match row.form {
            Some(Form::Shim) => file.starts_with(row.name),
            Some(Form::Oci | Form::Conmon | Form::IsuladShim) | None => row.name == file,
        })
    }

    /// Whether a program of this name can be a container's first program, about to execute the container's
    /// own.
    #[must_use]
    pub fn is_init(file: &str) -> bool {
        HELPERS.iter().any(|row| row.inits.contains(&file))
    }

    /// Whether the programs of a container are not processes of the node if a helper of this name made it,
    /// holds it, or is its first process.
    #[must_use]
    pub fn hides(file: &str) -> bool {
        match Self::of(file) {
            Some(Self { form: Some(Form::Shim), .. }) => !PROCESS_SHIMS.contains(&file),
            Some(row) => row.hides_programs,
            None => HELPERS.iter().any(|row| row.hiders.contains(&file)),
        }
    }
}
