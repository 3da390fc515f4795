//! Log lines of runtimes and kubelets: why a plugin failed, and the work for an image.

use std::ops::Range;

use probe_user::{
    model::{
        fact::CniCommand,
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::{
        files::answer::{About, Answerer, AskedPod, FailedCall, LogSearch},
        host::HostRoot,
    },
};

/// The wall clock's time at boot: 2026-11-21T08:15:00Z.
const BOOT_NS: i64 = 1_795_248_900_000_000_000;
const SANDBOX: &str = "9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c";
/// The searched range of times.
const TIME: Range<Timestamp> = Timestamp::ZERO..Timestamp(3_600_000_000_000);
/// The maximum length of an answer's text, in bytes.
const TEXT: usize = 512;

const LINES: [&str; 14] = [
    r#"time="2026-11-21T08:15:03.992378979Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:web-0,Uid:00000000-0142-4000-8000-000000000001,Namespace:default,Attempt:0,} failed, error" error="failed to setup network for sandbox \"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\": plugin type=\"bridge\" failed (add): failed to find plugin \"host-nowhere\" in path [/usr/lib/cni]""#,
    r#"{"error":"failed to setup network for sandbox \"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\": plugin type=\"bridge\" failed (add): no \u003caddress\u003e","level":"error","msg":"RunPodSandbox for \u0026PodSandboxMetadata{Name:web-0,Uid:u,Namespace:default,Attempt:0,} failed, error","time":"2026-11-21T08:15:03.992378979Z"}"#,
    r#"E1121 08:15:07.123456    1234 pod_workers.go:1294] "Error syncing pod, skipping" err="failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = Unknown desc = failed to destroy network for sandbox \\\"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\\\": plugin type=\\\"calico\\\" failed (delete): no route\"" pod="default/web-0" podUID=u"#,
    r#"time="2026-11-21 09:15:03.988990154+01:00" level=error msg="Error adding pod default_web-0 to CNI network \"crio\": plugin type=\"bridge\" failed (add): no IP addresses available""#,
    r#"time="2026-11-21T08:15:10.5Z" level=info msg="PullImage \"docker.io/library/nginx:1\"""#,
    r#"time="2026-11-21T08:15:12Z" level=info msg="ImageCreate event name:\"docker.io/library/nginx:1\"""#,
    r#"time="2026-11-21T08:15:14Z" level=info msg="Pulled image \"docker.io/library/nginx:1\" with image id \"sha256:aa\", repo tag \"docker.io/library/nginx:1\", size \"57\" in 4.2s""#,
    r#"time="2026-11-21T08:15:14Z" level=info msg="PullImage \"docker.io/library/nginx:1\" returns image reference \"sha256:aa\"""#,
    r#"time="2026-11-21T08:15:15Z" level=info msg="CreateContainer within sandbox \"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\" for container &ContainerMetadata{Name:web,Attempt:0,}""#,
    r#"time="2026-11-21T08:15:16Z" level=info msg="CreateContainer within sandbox \"9ffacbee324df7fd45b7008e491722c0cb0bc973707eb4fedc3d112afc30e42c\" for &ContainerMetadata{Name:web,Attempt:0,} returns container id \"c1\"""#,
    r#"time="2026-11-21 08:15:10.000000000Z" level=info msg="Pulling image: docker.io/library/nginx:1" id=1 name=/runtime.v1.ImageService/PullImage"#,
    r#"I1121 08:15:10.123456    1234 event.go:389] "Event occurred" object="default/web-0" kind="Pod" reason="Pulling" message="Pulling image \"nginx:1\"""#,
    r#"I1121 08:15:14.123456    1234 event.go:389] "Event occurred" object="default/web-0" kind="Pod" reason="Pulled" message="Successfully pulled image \"nginx:1\" in 4.2s (4.2s including waiting). Image size: 57 bytes.""#,
    r#"2026-11-21T08:15:15Z node-1 kubelet[1234]: I1121 08:15:15.123456    1234 request.go:752] "Waited before sending request" delay="1.194s" reason="client-side throttling, not priority and fairness" verb="POST" URL="https://10.0.0.1:6443/api/v1/namespaces/default/serviceaccounts/default/token""#,
];

/// A container that containerd has on record, so that its image is known.
const BUNDLE: &str = "== run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json\n{\"annotations\":\
    {\"io.kubernetes.cri.container-type\":\"container\",\"io.kubernetes.cri.container-name\":\"web\",\
    \"io.kubernetes.cri.image-name\":\"docker.io/library/nginx:1\",\"io.kubernetes.cri.sandbox-id\":\"9ffacbee\",\
    \"io.kubernetes.cri.sandbox-name\":\"web-0\",\"io.kubernetes.cri.sandbox-namespace\":\"default\"}}\n";

pub fn seeds() -> Vec<Vec<u8>> {
    let logs = ["var/log/containerd.log", "var/log/syslog", "var/log/messages", "var/log/kubelet.log"];
    let all = logs.map(|log| format!("{BUNDLE}== {log}\n{}\n", LINES.join("\n")).into_bytes());
    // Also in syslog's own form.
    let framed = LINES.map(|line| format!("Nov 21 08:15:16 node-1 containerd[321]: {line}")).join("\n");
    let framed = format!("{BUNDLE}== var/log/syslog\n{framed}\n").into_bytes();
    all.into_iter().chain([framed]).collect()
}

pub fn run(bytes: &[u8]) {
    let root = super::folder();
    super::lay_out(root.path(), bytes);
    ask(&HostRoot::open(root.path()).expect("a root"));
}

/// Asks for everything that a log can contain, twice.
pub(super) fn ask(host: &HostRoot) {
    let ids = [SANDBOX, "c1"].map(|id| ContainerId::parse(id).expect("an id"));
    let mut answerer = Answerer::new(host);
    let mut ask = || {
        let failed =
            |command| ids.each_ref().map(|container| FailedCall { container, command, logged: TIME });
        let failed = [CniCommand::Add, CniCommand::Del].map(failed).concat();
        let uid = PodUid::parse("0f7a3c1e-0b1d-4c57-9a55-8d1b3f6b7e21").expect("a UID");
        let mut all = vec![About::Pod(AskedPod {
            uid,
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            sandboxes: ids.to_vec(),
            container: Some("main".to_owned()),
        })];
        for id in &ids {
            all.extend([About::Container(id.clone()), About::Sandbox(id.clone())]);
        }
        let searches = all.into_iter().map(|about| LogSearch { about, time: TIME }).collect();
        (answerer.messages(&failed, BOOT_NS), answerer.search_logs(searches, BOOT_NS, TIME.end))
    };
    let answers = ask();
    assert_eq!(answers.0.len(), 2 * ids.len(), "a call has no answer");
    for found in &answers.0 {
        let text = found.text.as_deref().unwrap_or_default();
        assert!(text.len() <= TEXT && !text.contains('\n'), "{text:?}");
    }
    assert_eq!(ask(), answers, "the same logs tell something else");
}
