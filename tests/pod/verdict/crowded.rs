//! Findings about duplicates, and about a full address pool.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;
use tests::{
    containerd::Options,
    keyed::Faults,
    kubelet::{Kubelet, Pod, Sandbox},
    node::Node,
    story::service,
    stream::Stream,
};

use super::{declared_store, ensure_exactly, grace, until_confirmed, watch};

/// A pod that runs until the test ends it.
struct Living {
    pod: Pod,
    sandbox: Sandbox,
}

impl Living {
    fn start(kubelet: &mut Kubelet, name: &str) -> Result<Self> {
        let pod = service(name);
        kubelet.prepare(&pod)?;
        let sandbox = kubelet.run_sandbox(&pod, 0)?;
        Ok(Self { pod, sandbox })
    }

    /// Starts the pod's first container. With another `attempt` it is another container of the same name.
    fn run(&self, kubelet: &mut Kubelet, attempt: u32) -> Result<String> {
        let container = self.pod.containers.first().context("a container")?;
        Ok(kubelet.run_container(&self.pod, &self.sandbox, container, attempt)?.id)
    }

    fn end(&self, kubelet: &mut Kubelet) -> Result<()> {
        kubelet.stop_sandbox(&self.sandbox.id)?;
        kubelet.remove_cgroup(&self.pod)?;
        kubelet.remove_sandbox(&self.sandbox.id)?;
        kubelet.remove_logs(&self.pod)
    }
}

pub(super) fn until_closed(stream: &mut Stream, kind: &str) -> Result<()> {
    stream.until(&format!("the end of {kind}"), |event| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == kind
    })
}

/// A cleaning script removes the addresses of running pods too.
#[test]
fn an_address_of_two_pods_is_found() -> Result<()> {
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    let mut stream = watch(&node)?;
    let first = Living::start(&mut kubelet, "first")?;
    let store = node.network().store();
    fs::remove_dir_all(&store).with_context(|| format!("remove {}", store.display()))?;
    let second = Living::start(&mut kubelet, "second")?;
    ensure!(first.sandbox.addresses == second.sandbox.addresses, "host-local still remembers its addresses");
    until_confirmed(&mut stream, &["duplicate_address"])?;
    second.end(&mut kubelet)?;
    until_closed(&mut stream, "duplicate_address")?;
    first.end(&mut kubelet)?;
    let (received, _) = stream.end()?;
    let found = ensure_exactly(&received, &["duplicate_address"])?;
    let it = &found["duplicate_address"];
    ensure!(it["detail"]["address"] == *first.sandbox.addresses[0], "{it:#}");
    ensure!(it["sandboxes"] == json!([first.sandbox.id, second.sandbox.id]), "{it:#}");
    ensure!(it["severity"] == "critical" && it["pod"]["name"] == "second", "{it:#}");
    node.stop()
}

/// Both states exist for a moment on a healthy node too. So both findings take half a minute.
#[test]
fn a_full_pool_and_a_duplicate_container_are_found() -> Result<()> {
    // The addresses of a /29 without the network's, the gateway's and the broadcast address.
    const ROOM: u32 = 5;
    let node = Node::start_with(&Options { prefix: Some(29), ..Options::default() })?;
    let mut kubelet = node.kubelet()?;
    let mut stream = watch(&node)?;
    let pods: Vec<Living> = (0..ROOM)
        .map(|number| Living::start(&mut kubelet, &format!("crowd-{number}")))
        .collect::<Result<_>>()?;
    let twice = pods.first().context("a pod")?;
    let containers = [twice.run(&mut kubelet, 0)?, twice.run(&mut kubelet, 1)?];
    until_confirmed(&mut stream, &["duplicate_container", "pool_exhaustion"])?;
    for pod in &pods {
        pod.end(&mut kubelet)?;
    }
    until_closed(&mut stream, "duplicate_container")?;
    until_closed(&mut stream, "pool_exhaustion")?;
    let (received, _) = stream.end()?;
    let found = ensure_exactly(&received, &["duplicate_container", "pool_exhaustion"])?;
    let it = &found["duplicate_container"];
    ensure!(it["detail"]["containers"] == json!(containers), "{it:#}");
    ensure!(it["sandboxes"] == json!([twice.sandbox.id]) && it["pod"]["uid"] == *twice.pod.uid, "{it:#}");
    let it = &found["pool_exhaustion"];
    let detail = &it["detail"];
    ensure!(detail["network"] == *node.network().name && detail["leaked"] == 0, "{it:#}");
    ensure!(detail["size"] == ROOM && detail["used"] == ROOM && detail["free"] == 0, "{it:#}");
    node.stop()
}

#[test]
fn plugins_that_wait_for_each_other_are_found() -> Result<()> {
    const PLUGINS: usize = 4;
    // One call less than these would be too few for a queue. None of them takes long enough to be slow.
    let limit = PLUGINS.to_string();
    let slow = format!("{}s", 10 * grace().as_secs());
    let takes = grace() + Duration::from_secs(3);
    let faults = Faults { add_takes_ms: u64::try_from(takes.as_millis())?, ..Faults::default() };
    let node = Node::start_keyed(faults)?;
    let kubelet = node.kubelet()?;
    let store = declared_store(&node).context("the plugin has a store")?;
    let watch = ["watch", "--cni-queue", &limit, "--cni-slow", &slow, "--ipam-store", &store];
    let mut stream = Stream::start(&watch)?;
    let pods = thread::scope(|scope| -> Result<Vec<Living>> {
        let workers: Vec<_> = (0..PLUGINS)
            .map(|number| {
                let mut kubelet = kubelet.another()?;
                Ok(scope.spawn(move || Living::start(&mut kubelet, &format!("queued-{number}"))))
            })
            .collect::<Result<_>>()?;
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_panic| anyhow!("a worker panicked"))?)
            .collect()
    })?;
    until_confirmed(&mut stream, &["cni_queue"])?;
    until_closed(&mut stream, "cni_queue")?;
    let mut kubelet = kubelet;
    for pod in &pods {
        pod.end(&mut kubelet)?;
    }
    let (received, _) = stream.end()?;
    let found = ensure_exactly(&received, &["cni_queue"])?;
    let it = &found["cni_queue"];
    ensure!(it["detail"]["waiting"] == PLUGINS && it["detail"]["plugin"] == "keyed", "{it:#}");
    // No event waits for as long as these calls take, and the runtime made all namespaces at once.
    for pod in &pods {
        let of_pod = received.of_pod(&pod.pod.uid);
        let made = of_pod.iter().filter(|event| event["event"] == "netns.created").count();
        ensure!(made == 1, "{made} namespaces of {} are told with its name", pod.pod.name);
    }
    node.stop()
}
