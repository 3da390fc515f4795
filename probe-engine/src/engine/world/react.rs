//! Reactions: what each fact changes, with all of its effects from top to bottom. `apply` calls one function
//! for each fact and each timer.
//!
//! **Invariant:** a reaction uses only the reactions after it in this list, tables and lookups. `cargo xtask
//! tidy` refuses anything else.
//!
//! * `agent`: a new agent goes on with the state of the last one
//! * `exec`: an exec, a CNI call, a process that a listing found
//! * `listing`: a listing ended: what it does not have is gone
//! * `exit`: the end of a process, and the signals that may end it
//! * `loss`: records were lost, or no agent ran
//! * `address`: addresses of network namespaces
//! * `cgroup`: cgroups
//! * `cached`: a reading of libcni's cache
//! * `records`: a reading of IPAM stores, runtimes' records and networks
//! * `log_found`: what a search through the logs found
//! * `reap`: rows of ended things are forgotten
//! * `ledger`: questions to stores that cannot be read whole
//! * `cni`: CNI calls
//! * `container`: the programs of containers
//! * `netns`: network namespaces
//! * `belief`: what runtimes report over CRI
//! * `attachment`: the results of CNI calls
//! * `release`: releases that nothing verifies
//! * `wrong_del`: DELs that cannot be right
//! * `message`: messages of plugins
//! * `lease`: addresses that an ADD gave
//! * `identity`: what a container is, and of which sandbox and pod
//! * `sandbox`: the states of sandboxes
//! * `claim`: the sandbox of a network namespace
//! * `run`: the runs of a sandbox's containers
//! * `pod`: pods
//! * `start`: the starts of pods
//! * `recovery`: the recovery of the node
//! * `restart`: restarts of runtimes and the kubelet
//! * `watch`: namespaces that netlink watches
//! * `gap`: when the node is listed again
//! * `reading`: when the records are read again
//! * `log_search`: when the logs are searched
//! * `program`: versions of programs
//! * `words`: what the runtime and the kubelet say about pods that wait

pub(crate) mod address;
pub(crate) mod agent;
pub(crate) mod attachment;
pub(crate) mod belief;
pub(crate) mod cached;
pub(crate) mod cgroup;
pub(crate) mod claim;
pub(crate) mod cni;
pub(crate) mod container;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod gap;
pub(crate) mod identity;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod listing;
pub(crate) mod log_found;
pub(crate) mod log_search;
pub(crate) mod loss;
pub(crate) mod message;
pub(crate) mod netns;
pub(crate) mod pod;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod reap;
pub(crate) mod records;
pub(crate) mod recovery;
pub(crate) mod release;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod start;
pub(crate) mod watch;
pub(crate) mod words;
pub(crate) mod wrong_del;
