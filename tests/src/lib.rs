//! The test harness: the modules that the tests use, and the programs that act as parts of a node.
//!
//! * [`guard`] creates network namespaces, cgroups and addresses, and removes them when the guard is dropped.
//! * [`kubelet`] acts as the kubelet. It drives a container runtime through [`cri`].
//! * [`manifest`] makes a pod for it from the deployment's manifests. [`prometheus`] runs a real Prometheus
//!   with the alerts of the deployment.
//! * [`containerd`] starts a private containerd on this machine with the images of [`image`], and removes all
//!   traces of it. [`node`] uses that containerd or the one of a VM. [`registry`] has an image that it pulls.
//! * [`edge`] is a node that boots by itself.
//! * [`keyed`] is a CNI plugin that can leak addresses.
//! * [`story`] does things to a node that make it leak addresses, and records what really happened.
//! * [`ftrace`] records the kernel's own trace in the meantime.
//! * [`stream`] runs the built agent beside a test and reads its events. [`finding`] reads one finding.
//!   [`refusal`] checks whether the agent's confinement refused it something. [`succession`] runs agents one
//!   after the other.
//! * [`http`] sends requests to a server, through [`tls`] where the server needs it.
//! * [`api_server`] is an API server of a cluster.
//! * [`receiver`] takes traces and logs, and checks them by the protocol's rules.
//! * [`storm`] starts programs as fast as the machine can.
//! * [`browser`] drives a real browser, and [`site`] serves its pages.
//! * [`live`] attaches the hooks and returns their observations. [`skipped`] reads which runs of them the
//!   kernel skipped. [`loaded`] lists the programs that are in the kernel, [`held`] says what a running agent
//!   holds.
//!
//! The modules that need a feature are listed by feature below.

pub mod cgroupfs;
pub mod clock;
pub mod command;
pub mod finding;
pub mod golden;
pub mod guard;
pub mod http;
pub mod keyed;
pub mod machine;
pub mod program;
pub mod refusal;
pub mod thread;

#[cfg(feature = "api-server")]
pub mod api_server;

#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "browser")]
pub mod site;

#[cfg(any(feature = "kernel", feature = "node"))]
pub mod held;
#[cfg(any(feature = "kernel", feature = "node"))]
pub mod loaded;
#[cfg(any(feature = "kernel", feature = "node"))]
pub mod skipped;
#[cfg(any(feature = "kernel", feature = "node"))]
pub mod succession;

#[cfg(feature = "kernel")]
pub mod live;
#[cfg(feature = "kernel")]
pub mod receiver;
#[cfg(feature = "kernel")]
pub mod storm;

#[cfg(feature = "node")]
pub mod containerd;
#[cfg(feature = "node")]
pub mod cri;
#[cfg(feature = "node")]
pub mod edge;
#[cfg(feature = "node")]
pub mod ftrace;
#[cfg(feature = "node")]
pub mod image;
#[cfg(feature = "node")]
pub mod interrupt;
#[cfg(feature = "node")]
pub mod kubelet;
#[cfg(feature = "node")]
pub mod manifest;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
pub mod prometheus;
#[cfg(feature = "node")]
pub mod registry;
#[cfg(feature = "node")]
pub mod story;
#[cfg(feature = "node")]
pub mod stream;
#[cfg(feature = "node")]
pub mod tls;
