//! One pod. All its names, ids and keys are derived from its number.

use std::net::{IpAddr, Ipv4Addr};

use probe_engine::model::{
    fact::{Cgroup, PodName, Task},
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet, TICK, TaskKey},
    time::Timestamp,
};

/// The node's own network namespace.
pub(crate) const HOST: u32 = 4_026_531_833;
/// The first address of pods.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 0, 0, 2]);

/// The processes of a pod, by number: `pid - first pid`.
pub(crate) const SHIM: u32 = 0;
pub(crate) const PAUSE: u32 = 1;
pub(crate) const MAIN: u32 = 2;
/// The first number of short-lived programs.
pub(crate) const PASSING: u32 = 3;
const PIDS: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    number: u64,
    pub(crate) began_at: Timestamp,
    pub(crate) address: IpAddr,
    /// The ids of the sandbox and of the container.
    pub(crate) ids: [String; 2],
    uid: String,
}

impl Pod {
    pub(crate) fn new(number: u64, began_at: Timestamp) -> Self {
        Self {
            number,
            began_at,
            address: address(number),
            ids: [full_id(number * 2), full_id(number * 2 + 1)],
            uid: uid(number),
        }
    }

    /// Makes another sandbox of a pod, as a runtime does after a failed ADD.
    pub(crate) fn tried_again(number: u64, of_pod: u64, began_at: Timestamp) -> Self {
        Self { uid: uid(of_pod), ..Self::new(number, began_at) }
    }

    // Ids are parsed for each fact, as sources do: a clone would share its string with the engine.
    pub(crate) fn sandbox(&self) -> ContainerId {
        parse(&self.ids[0])
    }

    pub(crate) fn container(&self) -> ContainerId {
        parse(&self.ids[1])
    }

    pub(crate) fn uid(&self) -> PodUid {
        PodUid::parse(&self.uid).expect("made as a UUID")
    }

    pub(crate) fn name(&self) -> PodName {
        PodName {
            namespace: Some("default".to_owned()),
            name: Some(format!("web-{}", &self.uid[24..])),
            uid: Some(self.uid()),
        }
    }

    /// Returns `CNI_ARGS` as a plugin gets it.
    pub(crate) fn cni_args(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            &self.uid[24..],
            self.ids[0],
            self.uid
        )
    }

    pub(crate) fn netns(&self) -> NetnsKey {
        NetnsKey::new(inode(self.number), self.number + 1)
    }

    pub(crate) fn netns_path(&self) -> String {
        format!("/var/run/netns/cni-{:012x}", self.number)
    }

    pub(crate) fn subnet(&self) -> Subnet {
        Subnet { address: self.address, prefix: 8 }
    }

    /// Returns the cgroups of the pod, its sandbox and its container.
    pub(crate) fn cgroups(&self) -> [Cgroup; 3] {
        let pod = format!("/kubepods/besteffort/pod{}", self.uid);
        let [sandbox, container] = &self.ids;
        let paths = [pod.clone(), format!("{pod}/{sandbox}"), format!("{pod}/{container}")];
        let mut place = 0;
        paths.map(|path| {
            place += 1;
            let key = CgroupKey::new(0, 100 + self.number * 4 + place);
            Cgroup { key, level: if place == 1 { 3 } else { 4 }, path, nested: false }
        })
    }

    /// Makes a process of the pod. `began_at` distinguishes processes that have the same pid one after the
    /// other.
    pub(crate) fn task(&self, process: u32, comm: &str, began_at: Timestamp) -> Task {
        let pid = self.pid(process);
        let shim = TaskKey::new(self.pid(SHIM), ticks(self.began_at));
        let mut task = task(TaskKey::new(pid, ticks(began_at)), comm);
        task.parent = if process == SHIM { TaskKey::new(1, 0) } else { shim };
        task
    }

    /// Makes a process within the container (2) or the sandbox (1).
    pub(crate) fn task_within(&self, place: usize, process: u32, comm: &str, began_at: Timestamp) -> Task {
        let [_, sandbox, container] = self.cgroups();
        let cgroup = if place == 1 { sandbox.key } else { container.key };
        Task { cgroup, netns: inode(self.number), ..self.task(process, comm, began_at) }
    }

    fn pid(&self, process: u32) -> u32 {
        // Pids wrap at the number of a large node. By then the processes of the first pods are long gone.
        let first = u32::try_from(self.number % 60_000).expect("small") * PIDS;
        1000 + first + process
    }
}

/// Makes a process of the node.
pub(crate) fn task(key: TaskKey, comm: &str) -> Task {
    Task {
        key,
        tid: key.pid,
        parent: TaskKey::new(1, 0),
        comm: comm.to_owned(),
        cgroup: CgroupKey::new(0, 1),
        netns: HOST,
    }
}

pub(crate) fn containerd() -> Task {
    task(TaskKey::new(564, TICK), "containerd")
}

pub(crate) fn kubelet() -> Task {
    task(TaskKey::new(500, TICK), "kubelet")
}

pub(crate) fn address(number: u64) -> IpAddr {
    let number = u32::try_from(number).expect("so many addresses");
    Ipv4Addr::from(FIRST_ADDRESS + number).into()
}

/// Makes an id like a runtime's; ids are not in the order of time.
pub(crate) fn full_id(number: u64) -> String {
    let (one, other) = (scattered(number), scattered(!number));
    format!("{one:016x}{other:016x}{one:016x}{other:016x}")
}

pub(crate) fn parse(id: &str) -> ContainerId {
    ContainerId::parse(id).expect("made as an id")
}

fn uid(number: u64) -> String {
    let scattered = scattered(number ^ 0x5555);
    format!("{:08x}-{:04x}-4000-8000-{number:012}", scattered >> 32, scattered >> 8 & 0xffff)
}

fn inode(number: u64) -> u32 {
    4_026_532_000 + u32::try_from(number % 200_000).expect("small")
}

fn ticks(at: Timestamp) -> u64 {
    at.0 / TICK * TICK
}

/// Maps each number to another one (Sebastiano Vigna's SplitMix64).
fn scattered(number: u64) -> u64 {
    let mut it = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}
