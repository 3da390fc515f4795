//! The keys of attributes, and what each means. docs/otlp.md has the table.

macro_rules! keys {
    ($($name:ident = $key:literal: $meaning:literal,)*) => {
        $(pub(super) const $name: &str = $key;)*

        /// Each key with its meaning, in the order of the table.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$(($key, $meaning)),*];
    };
}

keys! {
    SERVICE_NAME = "service.name": "resource: `sandprobe`",
    SERVICE_VERSION = "service.version": "resource: the version of sandprobe",
    SERVICE_INSTANCE = "service.instance.id": "resource: the node's name",
    NODE = "k8s.node.name": "resource: the node's name (`--node`, else `NODE_NAME`, else the host name in small letters)",
    HOST_NAME = "host.name": "resource: the node's name",
    HOST_ID = "host.id": "resource: the node's `/etc/machine-id`, where there is one",
    HOST_ARCH = "host.arch": "resource: the processor architecture, `amd64` or `arm64`",
    OS_TYPE = "os.type": "resource: `linux`",
    OS_VERSION = "os.version": "resource: the kernel's release",
    BOOT_ID = "sandprobe.boot_id": "resource: the kernel's random id of the boot",
    NAMESPACE = "k8s.namespace.name": "the pod's namespace",
    POD = "k8s.pod.name": "the pod's name",
    POD_UID = "k8s.pod.uid": "the pod's UID",
    CONTAINER = "k8s.container.name": "the container's name in the pod's specification",
    CONTAINER_ID = "container.id": "the container's id",
    RUNTIME = "container.runtime.name": "the program that made the sandbox's network namespace, if that is a runtime",
    SANDBOX = "sandprobe.sandbox.id": "the id of the pod's sandbox",
    SANDBOXES = "sandprobe.sandbox.ids": "the sandboxes of a finding",
    PHASE = "sandprobe.phase": "the phase of a start (phases.md), or the period of a boot (boot.md)",
    INFERRED = "sandprobe.inferred": "no event says so: it is concluded from what came before and after",
    GAPPED = "sandprobe.gapped": "records were lost meanwhile",
    COMPLETE = "sandprobe.complete": "whether all of it was seen, up to its end",
    MARKS = "sandprobe.marks": "why it is less than whole, a word each",
    NOTES = "sandprobe.notes": "why it took as long as it did, a sentence each",
    MISSING = "sandprobe.containers.missing": "containers that the pod is to have and that did not begin",
    PLUGIN = "sandprobe.cni.plugin": "the CNI plugin",
    COMMAND = "sandprobe.cni.command": "`ADD`, `DEL` and the like",
    INTERFACE = "sandprobe.cni.interface": "the interface for which the plugin was called",
    CALLED_BY = "sandprobe.cni.called_by": "the plugin that called this one",
    ADDS = "sandprobe.cni.adds": "calls of ADD in the phase",
    FAILED = "sandprobe.cni.failed": "those of them that failed",
    EXIT_CODE = "sandprobe.exit_code": "how the program ended; 128 and the signal's number if a signal ended it",
    KILLER = "sandprobe.killed_by": "the program that sent the signal which ended it",
    DURATION = "sandprobe.duration_ns": "how long the call took",
    THROTTLED = "sandprobe.cpu.throttled_ns": "how long the pod's CPU limit held it back in the phase",
    PORT = "sandprobe.listening.port": "the port on which the container first listened",
    REASON = "sandprobe.reason": "the first sign of the sandbox's end (docs/events.md)",
    RESTART_BY = "sandprobe.boot.ordered_by": "who ordered the restart",
    RECOVERED_BY = "sandprobe.boot.recovered": "when a pod counts as back: `started` or `listening`",
    TIME_SOURCE = "sandprobe.boot.source": "how a milestone's time is known (boot.md)",
    POD_KIND = "sandprobe.pod.kind": "`static`, `system` or `service`",
    FINDING = "sandprobe.finding.key": "the finding's key, the same over restarts of the agent",
    KIND = "sandprobe.finding.kind": "the kind of the finding (findings.md)",
    STAGE = "sandprobe.finding.stage": "`candidate`, `confirmed` or `closed`",
    SEVERITY = "sandprobe.finding.severity": "`info`, `warning` or `critical`",
    SINCE = "sandprobe.finding.since": "when what is wrong began",
    CAUSE = "sandprobe.finding.cause": "how it came about, as far as the evidence goes",
    DETAIL = "sandprobe.finding.detail": "the members of `detail` of the event (events.md), as a map",
    SUMMARY = "sandprobe.finding.summary": "the finding in one sentence",
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::ALL;
    use crate::golden;

    const BEGIN: &str = "<!-- attributes -->\n";
    const END: &str = "<!-- end of attributes -->\n";

    #[test]
    fn the_page_has_each_key_with_its_meaning() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/otlp.md");
        let page = fs::read_to_string(file).expect("docs/otlp.md");
        let (before, rest) = page.split_once(BEGIN).expect("a mark");
        let (_, after) = rest.split_once(END).expect("a mark at its end");
        let rows: String = ALL.iter().map(|(key, meaning)| format!("| `{key}` | {meaning} |\n")).collect();
        golden::expect(
            "docs/otlp.md",
            &format!("{before}{BEGIN}| attribute | meaning |\n| --- | --- |\n{rows}{END}{after}"),
        );
        let names: BTreeSet<&str> = ALL.iter().map(|(key, _)| *key).collect();
        assert_eq!(names.len(), ALL.len(), "a key is there twice");
    }
}
