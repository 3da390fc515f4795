//! The harness: what the tests, and the programs that play a node's part, are written with.
//!
//! * [`guard`] makes and drops the kernel's own things: network namespaces, cgroups, addresses.
//! * [`kubelet`] plays the kubelet on top of a runtime reached by [`cri`].
//! * [`manifest`] makes of what is deployed a pod for it; [`prometheus`] is a real one, with the alerts that are deployed.
//! * [`containerd`] starts a private runtime on this machine, with the images of [`image`], and leaves no trace;
//!   [`node`] takes it, or a VM's own.
//! * [`edge`] is a node that comes up by itself.
//! * [`keyed`] is a CNI plugin that loses addresses.
//! * [`story`] plays on a node what makes it lose addresses, and tells the truth of it.
//! * [`ftrace`] has the kernel's own trace of what happens meanwhile.
//! * [`stream`] runs the built agent beside a test and reads the events that it tells; [`finding`] reads one,
//!   and [`refusal`] whether its confinement kept it from something.
//! * [`http`] asks a server, by [`tls`] where it serves so.
//! * [`storm`] starts programs as fast as the machine can.
//! * [`browser`] is a real one, and [`site`] what it is served.
//! * [`live`] attaches the hooks and gives what they tell; [`skipped`] knows what the kernel kept from them.
//!
//! What a feature is needed for says so below.

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

#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "browser")]
pub mod site;

#[cfg(any(feature = "kernel", feature = "node"))]
pub mod skipped;

#[cfg(feature = "kernel")]
pub mod live;
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
pub mod story;
#[cfg(feature = "node")]
pub mod stream;
#[cfg(feature = "node")]
pub mod tls;
