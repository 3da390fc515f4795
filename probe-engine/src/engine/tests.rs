//! Stories of pods, and what is to be told of them.

mod absence;
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
mod phase;
mod pool;
mod property;
mod ready;
mod recovery;
mod sandbox;
mod story;
mod stuck;
mod trust;
