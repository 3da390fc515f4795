//! Stores of agents and plugins other than host-local in its usual place, on a copy of a node's files.

use std::{fs, os::unix::fs::symlink, time::Duration};

use tempfile::TempDir;

use super::{
    OLD, SANDBOXES, id,
    ipamd::{self, Answer, PodNetwork, Records},
    run, run_to, text, touch, write,
};

/// A node's disk without host-local's folder, with this configuration of CNI; the runtime knows sandbox 1.
fn disk_of(conf: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), "etc/cni/net.d/10-net.conflist", conf);
    fs::create_dir_all(root.path().join(SANDBOXES).join(id(1))).expect("directories");
    root
}

/// Antrea's agent has the node's `/var/run/antrea/cni` at `/var/lib/cni`.
#[test]
fn antrea_s_folder_is_read_once_by_whatever_name() {
    let conf =
        r#"{"name":"antrea","plugins":[{"type":"antrea","ipam":{"type":"host-local"}},{"type":"portmap"}]}"#;
    for is_link in [true, false] {
        let root = disk_of(conf);
        let place = if is_link { "run/antrea/cni" } else { "var/run/antrea/cni" };
        for (address, n) in [("10.1.0.8", 1), ("10.1.0.9", 2)] {
            let path = format!("{place}/networks/antrea/{address}");
            touch(root.path(), &path, &format!("{}\r\neth0", id(n)), OLD);
        }
        if is_link {
            symlink("/run", root.path().join("var/run")).expect("a link");
        }
        // Who declared it before it was known need not change that.
        let declared = format!("--ipam-store=/{place}/networks/antrea");
        for more in [&[][..], &[declared.as_str()]] {
            let said = run_to(1, root.path(), more);
            let row = "antrea   ?      ?     1     0           1       ?     host-local /var/run/antrea/cni/networks/antrea";
            assert_eq!(said.lines().filter(|line| *line == row).count(), 1, "{said}");
            let stores = said.lines().filter(|line| line.contains(" ?     host-local /"));
            assert_eq!(stores.count(), 1, "{said}");
            let call = format!("release '/var/run/antrea/cni/networks/antrea' 10.1.0.9 {}", id(2));
            assert_eq!(said.matches(&call).count(), 1, "{said}");
        }
    }
}

/// Dataplane V2 adds Cilium behind ptp, which has host-local give out the addresses.
#[test]
fn gke_s_dataplane_v2_has_host_local_s_store() {
    let conf = r#"{"name":"gke-pod-network","plugins":[{"type":"ptp","ipam":{"type":"host-local",
        "ranges":[[{"subnet":"10.4.1.0/24"}]]}},{"type":"cilium-cni"}]}"#;
    let root = disk_of(conf);
    for (address, n) in [("10.4.1.8", 1), ("10.4.1.9", 2)] {
        let path = format!("var/lib/cni/networks/gke-pod-network/{address}");
        touch(root.path(), &path, &format!("{}\r\neth0", id(n)), OLD);
    }
    let said = run_to(1, root.path(), &[]);
    let row = "gke-pod-network  10.4.1.0/24  253   1     0           1       251   host-local /var/lib/cni/networks/gke-pod-network";
    assert!(said.contains(row), "{said}");
}

const AZURE: &str = r#"{"cniVersion":"1.0.0","name":"azure","plugins":[
    {"type":"azure-vnet","ipam":{"type":"azure-cns"}},{"type":"portmap"}]}"#;
const ENDPOINTS: &str = "run/azure-cns/azure-endpoints.json";

/// The sandboxes with these numbers have addresses that end so.
fn endpoints(all: &[usize]) -> String {
    let one = |n: &usize| {
        format!(
            r#""{}":{{"PodName":"cart-{n}","PodNamespace":"shop","IfnameToIPMap":{{"eth0":{{"IPv4":[{{"IP":"10.7.0.{n}"}}]}}}}}}"#,
            id(*n)
        )
    };
    format!(r#"{{"Endpoints":{{{}}}}}"#, all.iter().map(one).collect::<Vec<_>>().join(","))
}

#[test]
fn a_sandbox_that_azure_cns_keeps_is_leaked_and_a_queued_release_is_told_as_such() {
    let root = disk_of(AZURE);
    symlink("/run", root.path().join("var/run")).expect("a link");
    touch(root.path(), ENDPOINTS, &endpoints(&[1]), OLD);
    let said = run_to(0, root.path(), &[]);
    assert!(said.contains("azure    ?      ?     1     0           0       ?     azure-cns /var/run/azure-cns/azure-endpoints.json"), "{said}");

    touch(root.path(), ENDPOINTS, &endpoints(&[1, 2, 3]), OLD);
    touch(root.path(), &format!("run/azure-vnet/deleteIDs/{}", id(3)), "00000000-eth0", OLD);
    let said = run_to(1, root.path(), &[]);
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("confirmed")).collect();
    assert!(rows.len() == 2 && rows[0].contains("10.7.0.2  stale_record    shop/cart-2"), "{said}");
    assert!(rows[1].contains("10.7.0.3  release_queued  shop/cart-3"), "{said}");

    let script = run_to(1, root.path(), &["--repair-script"]);
    let call = format!("try del_again {} 10.7.0.2 'eth0' 'shop' 'cart-2'", id(2));
    assert!(script.lines().any(|line| line == call), "{script}");
    assert!(!script.contains("del_again 0") || !script.contains("10.7.0.3"), "{script}");
    assert!(script.contains("# kubectl -n kube-system delete pod -l k8s-app=azure-cns"), "{script}");

    // The queue is not late yet.
    touch(root.path(), &format!("run/azure-vnet/deleteIDs/{}", id(3)), "00000000-eth0", Duration::ZERO);
    touch(root.path(), ENDPOINTS, &endpoints(&[1, 3]), OLD);
    run_to(0, root.path(), &[]);
}

#[test]
fn a_file_of_azure_that_is_cut_off_is_named() {
    let root = disk_of(AZURE);
    touch(root.path(), ENDPOINTS, &endpoints(&[2])[..40], OLD);
    let output = run(root.path(), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let why = "could not look everywhere: an IPAM store cannot be read: /run/azure-cns/azure-endpoints.json: not in a form that is known";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
}

const CILIUM: &str =
    r#"{"cniVersion":"0.3.1","name":"cilium","plugins":[{"type":"cilium-cni","enable-debug":false}]}"#;

/// The file of an endpoint of the sandbox with this number, whose address ends so.
fn endpoint(n: usize, is_external: bool) -> String {
    format!(
        r#"{{"ID":{n},"ContainerName":"","dockerID":"{}","IfName":"lxc{n}","ContainerIfName":"eth0","IPv6":"",
        "IPv4":"10.8.0.{n}","IPv4IPAMPool":"default","K8sPodName":"cart-{n}","K8sNamespace":"shop",
        "DatapathConfiguration":{{"external-ipam":{is_external}}}}}"#,
        id(n)
    )
}

#[test]
fn a_sandbox_whose_endpoint_cilium_keeps_is_leaked_and_a_queued_release_is_told_as_such() {
    let root = disk_of(CILIUM);
    symlink("/run", root.path().join("var/run")).expect("a link");
    let write_endpoint = |n: usize, age| {
        touch(root.path(), &format!("run/cilium/state/{n}/ep_config.json"), &endpoint(n, false), age);
    };
    let host = r#"{"ID":9,"IPv4":"","IPv6":"","DatapathConfiguration":null}"#;
    touch(root.path(), "run/cilium/state/9/ep_config.json", host, OLD);
    touch(root.path(), "run/cilium/state/8_stale/ep_config.json", &endpoint(8, false), OLD);
    write_endpoint(1, OLD);
    let said = run_to(0, root.path(), &[]);
    let row = "cilium   ?      ?     1     0           0       ?     cilium /var/run/cilium/state";
    assert!(said.lines().any(|line| line == row), "{said}");

    write_endpoint(2, OLD);
    write_endpoint(3, OLD);
    // Cilium's agent may still remove it by itself.
    write_endpoint(4, Duration::from_secs(200));
    let queued = format!(r#"{{"container-id":"{}"}}"#, id(3));
    touch(root.path(), "run/cilium/deleteQueue/0a.delete", &queued, OLD);
    touch(root.path(), "run/cilium/deleteQueue/lockfile", "", OLD);
    let said = run_to(1, root.path(), &[]);
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("confirmed")).collect();
    assert!(rows.len() == 2 && rows[0].contains("10.8.0.2  stale_record    shop/cart-2"), "{said}");
    assert!(rows[1].contains("10.8.0.3  release_queued  shop/cart-3"), "{said}");
    assert!(!said.contains("10.8.0.8"), "{said}");

    let script = run_to(1, root.path(), &["--repair-script"]);
    let call = format!("-- cilium-dbg endpoint disconnect 'cni-attachment-id:{}:eth0'", id(2));
    let calls: Vec<&str> = script.lines().filter(|line| line.contains("cilium-dbg endpoint")).collect();
    assert!(calls.len() == 1 && calls[0].starts_with("# kubectl ") && calls[0].ends_with(&call), "{script}");
    let restarts = script.matches("# kubectl -n kube-system delete pod -l k8s-app=cilium ").count();
    assert_eq!(restarts, 1, "{script}");
    assert!(!script.contains("\ntry "), "{script}");

    // The agent has started.
    fs::remove_dir_all(root.path().join("run/cilium/deleteQueue")).expect("a folder");
    for n in [2, 3, 4] {
        fs::remove_dir_all(root.path().join(format!("run/cilium/state/{n}"))).expect("a folder");
    }
    run_to(0, root.path(), &[]);
}

/// The other plugin has the addresses, and only its store can tell a leak.
#[test]
fn where_another_plugin_gives_out_the_addresses_cilium_has_no_store() {
    let chained = r#"{"name":"aws-cni","plugins":[{"type":"aws-cni"},{"type":"cilium-cni"}]}"#;
    let delegated = r#"{"name":"cilium","plugins":[{"type":"cilium-cni","ipam":{"type":"own-ipam"}}]}"#;
    let removed = r#"{"name":"own","plugins":[{"type":"own-cni"}]}"#;
    let all = [(chained, true), (chained, false), (delegated, true), (removed, false), (CILIUM, true)];
    for (conf, is_external) in all {
        let root = disk_of(conf);
        let path = "var/run/cilium/state/2/ep_config.json";
        touch(root.path(), path, &endpoint(2, is_external), OLD);
        let output = run(root.path(), &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{conf}: {said}");
        assert!(!text(&output.stdout).contains("10.8.0.2"), "{conf}: {}", text(&output.stdout));
        let why = if conf == CILIUM { "cilium-cni keeps" } else { "no IPAM store was found" };
        assert!(said.contains(why), "{conf}: {said}");
    }
}

#[test]
fn a_plugin_that_keeps_its_addresses_elsewhere_is_named() {
    let conf = r#"{"name":"k8s-pod-network","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}"#;
    let output = run(disk_of(conf).path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let why = "cannot look: calico-ipam keeps its addresses at the API server (ipamblocks, ipamhandles), where an agent \
               with --kubernetes-ipam calico asks (the chart's kubernetes.ipam=calico); ask the plugin's own tool";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
}

const UCLOUD: &str =
    r#"{"cniVersion":"0.3.1","name":"cni-vpc-uk8s","type":"cnivpc","masterInterface":"eth0"}"#;

/// A node of UCloud: the runtime knows sandbox 1.
fn uk8s() -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), "etc/cni/net.d/10-cnivpc.conf", UCLOUD);
    fs::create_dir_all(root.path().join(SANDBOXES).join(id(1))).expect("directories");
    fs::create_dir(root.path().join("run")).expect("a directory");
    root
}

/// The first pod has a second sandbox, and the address of its first one stays. The other pod may have a
/// static address.
#[test]
fn a_sandbox_that_ucloud_s_ipamd_has_on_record_is_leaked_and_a_static_address_is_not_judged() {
    let root = uk8s();
    let records = Records {
        code: 0,
        networks: vec![
            PodNetwork::new("cart-x2x9z", &id(1), "10.5.0.8", 1_700_000_000),
            PodNetwork::new("cart-x2x9z", &id(2), "10.5.0.9", 1_700_000_000),
            PodNetwork::new("db-0", &id(3), "10.5.0.10", 1_700_000_000),
        ],
    };
    ipamd::start(&root.path().join("run/cni-vpc-ipamd.sock"), Answer::Records(records));
    let said = run_to(1, root.path(), &[]);
    let row =
        "cni-vpc-uk8s  ?      ?     1     1           1       ?     ucloud-ipamd /run/cni-vpc-ipamd.sock";
    assert!(said.lines().any(|line| line == row), "{said}");
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("confirmed")).collect();
    assert!(rows.len() == 1 && rows[0].contains("10.5.0.9  stale_record  shop/cart-x2x9z"), "{said}");
    let kept = "cni-vpc-uk8s  10.5.0.10  shop/db-0, perhaps kept on purpose: not judged";
    assert!(said.contains(kept), "{said}");

    let script = run_to(1, root.path(), &["--repair-script"]);
    let call = format!("try del_again {} 10.5.0.9 'eth0' 'shop' 'cart-x2x9z'", id(2));
    assert!(script.lines().any(|line| line == call), "{script}");
    assert!(script.contains("ipamd must answer") && !script.contains("10.5.0.10"), "{script}");
}

/// As on a copy of a node's files, which has no daemon.
#[test]
fn a_ucloud_node_without_an_ipamd_that_answers_is_named() {
    let root = uk8s();
    let output = run(root.path(), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let why = "cannot look: cnivpc keeps its addresses behind ipamd's socket (/run/cni-vpc-ipamd.sock), which is not there, or in \
        a file of its own, which sandprobe does not read; ask the plugin's own tool";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    let socket = root.path().join("run/cni-vpc-ipamd.sock");
    for (answer, why) in [
        (Answer::Error(13), "gave no answer"),
        (Answer::Cut, "gave no answer"),
        (Answer::Never, "gave no answer"),
        (Answer::Bytes(vec![0xff]), "not in a form that is known"),
    ] {
        fs::remove_file(&socket).ok();
        ipamd::start(&socket, answer);
        let output = run(root.path(), &[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        let why = format!(
            "could not look everywhere: an IPAM store cannot be read: /run/cni-vpc-ipamd.sock: {why}"
        );
        assert!(text(&output.stderr).contains(&why), "{}", text(&output.stderr));
    }
}
