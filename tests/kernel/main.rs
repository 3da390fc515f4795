//! Tests on the kernel of the machine. They need root. They run one at a time, because the hooks of one test
//! see what another test makes: `cargo xtask test`.

mod address;
mod agent;
mod cgroup;
mod cni;
mod confine;
mod container;
mod cost;
mod failing_disk;
mod flood;
mod forge;
mod guard;
mod killer;
mod life;
mod listening;
mod log_file;
mod netlink;
mod netns;
mod otlp;
mod pinned;
mod process;
mod selftest;
mod serve;
mod stalled;
mod storm;
mod uninstall;
mod wakeup;
