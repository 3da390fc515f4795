//! Stories of pods, each with the events that the engine must report.

mod absence;
mod balance;
mod belief;
mod blind;
mod cni;
mod containerd;
mod docs;
mod duplicate;
mod listing;
mod named;
mod nameless;
mod netns;
mod order;
mod orphan;
mod ownerless;
mod phase;
mod pool;
mod property;
mod ready;
mod recovery;
mod sandbox;
mod story;
mod stuck;
mod stuck_start;
mod stuck_stop;
mod trust;
