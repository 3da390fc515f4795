//! The text of a leak's finding: its summary, its cause, links to known bugs, and the commands that free the
//! address.

use std::net::Ipv4Addr;

use crate::{
    model::{
        fact::StoreKind,
        finding::{Cause, Explain, LeakedAddress, Thing},
        id::ContainerId,
    },
    words::{
        escape::escaped,
        release::{
            Functions, del_again, del_again_for, disconnect, functions, release, release_in_calico,
            restart_cilium, restart_cns, restart_ipamd,
        },
        shell::{UNPRINTABLE, lines, quoted},
    },
};

impl LeakedAddress {
    fn is_of(&self, kind: StoreKind) -> bool {
        self.stores.iter().any(|it| it.kind == kind)
    }
}

impl Explain for LeakedAddress {
    fn summary(&self) -> String {
        let why = match self.cause {
            Cause::DelMissing => "DEL was never called",
            Cause::DelBlind => "DEL was called only with an empty CNI_NETNS",
            Cause::DelHollow => "DEL reported success and freed nothing",
            Cause::DelFailed => "DEL failed each time",
            Cause::AddFailed => "the ADD failed and no DEL was called",
            Cause::RuntimeEnded => "the runtime ended before it had the sandbox on record",
            Cause::ReleaseQueued => "the release waits in the plugin's queue",
            Cause::StaleRecord => "the IPAM store names a sandbox that no runtime knows",
        };
        let network =
            self.network.as_deref().map(|name| format!(" of {}", escaped(name))).unwrap_or_default();
        let state = if self.cause == Cause::ReleaseQueued { "not freed yet" } else { "leaked" };
        match &self.many {
            None => format!("{}{network} {state}: {why}", self.address),
            Some(many) => {
                format!("{} addresses{network} {state}, from {} on: {why}", many.count, self.address)
            }
        }
    }

    fn cause(&self) -> &'static str {
        match self.cause {
            Cause::DelMissing => {
                "The sandbox is over and no runtime has it on record any more, but the CNI plugin was never called with \
                 DEL for it. Its address stays allocated."
            }
            Cause::DelBlind => {
                "DEL was called only after the network namespace had gone, with an empty CNI_NETNS. The plugin looks \
                 the address up in the namespace, so it found nothing to free. It reported success, and the IPAM store \
                 still names the sandbox."
            }
            Cause::DelFailed => {
                "Every DEL for the sandbox failed, and the runtime has stopped trying: it no longer has the sandbox \
                 on record."
            }
            Cause::AddFailed => {
                "A CNI ADD reserved the address and then failed, and no DEL was called to free it."
            }
            Cause::RuntimeEnded => {
                "The runtime ended after the plugin had given out the address and before it had the sandbox on \
                 record. The runtime that runs now does not know the sandbox, and will never call DEL for it."
            }
            Cause::ReleaseQueued => {
                "DEL could not reach the plugin's daemon. It wrote the sandbox into a queue of that daemon and reported \
                 success. The daemon frees the address when it works through its queue, which it has not done in time: it is \
                 down, or it looks into the queue only at its start."
            }
            Cause::DelHollow | Cause::StaleRecord if self.is_of(StoreKind::UcloudIpamd) => {
                "UCloud's ipamd still has the record of a sandbox that no runtime has on record. The plugin reports success \
                 for a DEL whose record it cannot read, as when ipamd does not answer, and frees nothing then. Once the pod is \
                 gone, ipamd drops the record within 3 minutes, and does not free the address either."
            }
            Cause::DelHollow | Cause::StaleRecord if self.is_of(StoreKind::Cilium) => {
                "Cilium's agent still has the endpoint of a sandbox that no runtime has on record. Cilium's plugin reports \
                 success for a DEL that the agent refuses. The agent removes an endpoint by itself within 10 minutes if the \
                 interface is gone, so this is confirmed only after 12 minutes: then the interface is still there, or the \
                 agent does not run."
            }
            Cause::DelHollow | Cause::StaleRecord if self.is_of(StoreKind::Calico) => {
                "Calico's IPAM still has the handle of a sandbox that no runtime has on record. Its plugin frees by the \
                 container's id, with or without a namespace, so no DEL freed it. calico-kube-controllers frees what has no \
                 pod by itself after 15 to 30 minutes, so this is confirmed only after 32 minutes: then its clean-up is off, \
                 does not run, or does not see the address."
            }
            Cause::DelHollow => {
                "The plugin was called with DEL for the sandbox and reported success, but the IPAM's record of the address \
                 is still there. So the plugin did not free it: it looked for the address in the namespace and did not find \
                 it, it did not call its IPAM plugin, or it ignored that this failed."
            }
            Cause::StaleRecord => {
                "The IPAM store names a sandbox that no runtime has on record. sandprobe did not see how that came \
                 about: it was before sandprobe ran, before the last boot, or while records were lost."
            }
        }
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        if self.many.is_some() && self.cause == Cause::ReleaseQueued {
            return if self.is_of(StoreKind::Cilium) { restart_cilium() } else { restart_cns() };
        }
        if self.many.is_some() && self.is_of(StoreKind::Calico) {
            return release_in_calico();
        }
        if self.many.is_some() {
            return lines(&[
                "# This looks at the node again and writes a script that frees the leaked addresses one by one. The script",
                "# checks each address before it frees it. Read the script before you run it.",
                "sandprobe leaks --repair-script > free.sh",
            ]);
        }
        let Some(sandbox) = sandboxes.first() else { return Vec::new() };
        if self.stores.is_empty() {
            let mut all = lines(&[
                "# Only libcni's cache names this address. A runtime that calls CNI GC (CNI 1.1) removes the record by",
                "# itself. Ask the IPAM plugin's own tool whether the address is still allocated.",
            ]);
            if self.plugin.as_deref() == Some("calico") {
                all.extend(lines(&[
                    "# Calico's IPAM keeps that at the API server. An agent asks there with --kubernetes-ipam calico (the chart's",
                    "# kubernetes.ipam=calico). By hand:",
                    &format!("calicoctl ipam show --ip={}", self.address),
                ]));
            }
            return all;
        }
        let mut all = Vec::new();
        for store in &self.stores {
            match store.kind {
                StoreKind::HostLocal => {
                    all.extend(functions(Functions::Release, runtimes));
                    all.push(release(&store.path, self.address, sandbox));
                }
                StoreKind::AwsIpamd => all.extend(restart_ipamd()),
                StoreKind::AzureCns
                | StoreKind::AzureVnetIpam
                | StoreKind::AzureVnet
                | StoreKind::UcloudIpamd => {
                    if self.cause == Cause::ReleaseQueued {
                        all.extend(restart_cns());
                    } else {
                        all.extend(del_again(store.kind, runtimes));
                        all.push(del_again_for(self.address, sandbox, &self.ifname, None));
                    }
                }
                StoreKind::Cilium => {
                    all.extend(if self.cause == Cause::ReleaseQueued {
                        restart_cilium()
                    } else {
                        disconnect(sandbox, &self.ifname)
                    });
                }
                StoreKind::Calico => {
                    all.extend(release_in_calico());
                    all.push(format!(
                        "# report.json must name {} with the handle of {sandbox}.",
                        self.address
                    ));
                }
                StoreKind::Declared => {
                    all.push(
                        "# Free the address with the plugin's own tool: sandprobe does not know this store. The record is:"
                            .to_owned(),
                    );
                    let file = quoted(&format!("{}/{}", store.path.trim_end_matches('/'), self.address));
                    all.push(file.map_or_else(|| UNPRINTABLE.to_owned(), |file| format!("cat -- {file}")));
                }
            }
        }
        all
    }

    fn forget_numbers(&mut self) {
        if let Some(many) = &mut self.many {
            (self.address, many.count, many.first) = (Ipv4Addr::UNSPECIFIED.into(), 0, Vec::new());
        }
    }

    fn shows_some(&self) -> bool {
        self.many.is_some()
    }

    fn named(&self) -> Vec<Thing<'_>> {
        let mut all = vec![Thing::Address(self.address)];
        all.extend(self.many.iter().flat_map(|many| &many.first).copied().map(Thing::Address));
        all.extend(self.plugin.as_deref().map(Thing::Plugin));
        all.extend(self.network.as_deref().map(Thing::Network));
        all
    }
}
