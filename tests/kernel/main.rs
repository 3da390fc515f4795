//! Tests on the kernel of the machine they run on. They need root and run one at a time, since the hooks of
//! one see what another makes: `cargo xtask test`.

mod address;
mod agent;
mod cgroup;
mod cni;
mod confine;
mod container;
mod cost;
mod flood;
mod forge;
mod guard;
mod killer;
mod life;
mod listening;
mod netlink;
mod netns;
mod process;
mod selftest;
mod serve;
mod storm;
