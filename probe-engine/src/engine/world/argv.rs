//! Reads the arguments of runtimes' programs. Only commands that make something are read: `kill` and `delete`
//! may name a container that ended long ago.

use probe_common::runtime::{Form, HELPERS, Helper, RUNTIMES, Runtime};

use crate::{
    engine::world::daemon::runtime_named,
    model::{
        fact::PodName,
        id::{ContainerId, PodUid},
    },
};

/// The length of a full container id.
const FULL: usize = 64;

/// How runc's threads in a container name themselves (`libcontainer/nsenter`): `runc:[2:INIT]`.
const INIT: &str = "runc:[";

/// The container or sandbox that a program is about to make, or that it monitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) id: ContainerId,
    /// Only conmon's arguments name the pod.
    pub(crate) pod: Option<PodName>,
    pub(crate) name: Option<String>,
}

/// Reads the argv of an OCI runtime, a shim or a monitor.
#[must_use]
pub(crate) fn read(argv: &[String]) -> Option<Made> {
    let (program, rest) = argv.split_first()?;
    match form(program)? {
        Form::Shim => shim(rest),
        Form::Conmon => conmon(rest),
        Form::Oci => runtime(rest),
        // It also executes programs in a container. The OCI runtime that it calls says which.
        Form::IsuladShim => None,
    }
}

/// The container that an OCI runtime, a shim or a monitor works for, whatever its command is.
#[must_use]
pub(crate) fn about(argv: &[String]) -> Option<ContainerId> {
    let (program, rest) = argv.split_first()?;
    match form(program)? {
        Form::Shim => full(value(rest, &["-id", "--id"])?),
        Form::Conmon => full(value(rest, &["-c", "--cid"])?),
        Form::Oci => rest.iter().rev().find_map(|arg| full(arg)),
        Form::IsuladShim => full(rest.first()?),
    }
}

/// Whether a runtime's program is run to end a container: `runc kill`, `runc delete`, a shim's `delete`.
#[must_use]
pub(crate) fn is_ending(argv: &[String]) -> bool {
    let Some((program, rest)) = argv.split_first() else { return false };
    matches!(form(program), Some(Form::Oci | Form::Shim))
        && rest.iter().any(|arg| arg == "kill" || arg == "delete")
}

/// Whether a program of this name ends containers on behalf of the node's runtime. The kubelet is not one of
/// these programs: it asks the runtime to end a container.
#[must_use]
pub(crate) fn ends_containers(comm: &str) -> bool {
    let mut names = HELPERS.iter().map(|row| row.name).chain(RUNTIMES.iter().flat_map(Runtime::programs));
    names.any(|name| name == comm) || comm.starts_with(INIT)
}

/// Whether a runtime's program is run for something else than to serve: `crio status`, `containerd config
/// dump`.
#[must_use]
pub(crate) fn is_query(comm: &str, argv: &[String]) -> bool {
    runtime_named(comm).is_some_and(|runtime| runtime.is_command(argv.iter().skip(1).map(String::as_str)))
}

/// The form of the arguments of the program at this path.
fn form(program: &str) -> Option<Form> {
    Helper::of(program.rsplit('/').next()?)?.form
}

/// Parses a full container id. Runtimes of pods give full ids only. Other arguments are words and paths, and
/// a truncated argument is no id.
fn full(arg: &str) -> Option<ContainerId> {
    if arg.len() == FULL { ContainerId::parse(arg).filter(ContainerId::is_full) } else { None }
}

/// Whether the process is the runtime's own first program in a container. A later exec replaces it by the
/// container's program.
#[must_use]
pub(crate) fn is_init(comm: &str, argv: &[String]) -> bool {
    if comm.starts_with(INIT) {
        return true;
    }
    match argv {
        [program, verb, ..] => program.rsplit('/').next().is_some_and(Helper::is_init) && verb == "init",
        _ => false,
    }
}

/// Whether a process that was found in a container is the runtime's own first program there. While that is
/// being executed it has its name already, and no arguments yet.
#[must_use]
pub(crate) fn is_init_found(comm: &str, argv: &[String]) -> bool {
    is_init(comm, argv) || argv.is_empty() && Helper::is_init(comm)
}

/// Whether the programs of a container are no processes of the node if this process made it, holds it, or is
/// its first one. gVisor executes its own program by `/proc/self/exe`, and only the arguments name what it is
/// then.
#[must_use]
pub(crate) fn hides_programs(argv: &[String], path: &str) -> bool {
    let names = argv.first().map(String::as_str).into_iter().chain([path]);
    names.filter_map(|name| name.rsplit('/').next()).any(Helper::hides)
}

/// Reads `containerd-shim-runc-v2 -namespace k8s.io -id ID … start`, and the shim's daemon, which has no
/// verb.
fn shim(args: &[String]) -> Option<Made> {
    if args.last().is_some_and(|last| last == "delete") {
        return None;
    }
    let id = full(value(args, &["-id", "--id"])?)?;
    Some(Made { id, pod: None, name: None })
}

/// Reads `runc … create --bundle DIR ID`.
fn runtime(args: &[String]) -> Option<Made> {
    if !args.iter().any(|arg| arg == "create" || arg == "run") {
        return None;
    }
    Some(Made { id: full(args.last()?)?, pod: None, name: None })
}

/// Reads `conmon -c ID -n k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT …`. The name of a sandbox's container is
/// `POD`.
fn conmon(args: &[String]) -> Option<Made> {
    let id = full(value(args, &["-c", "--cid"])?)?;
    let name = value(args, &["-n", "--name"]).and_then(dockershim_name);
    let (name, pod) = name.unzip();
    Some(Made { id, pod, name })
}

/// Reads the container name format of dockershim, which CRI-O and cri-dockerd use as well. No part has an
/// underscore in it.
#[must_use]
pub(crate) fn dockershim_name(text: &str) -> Option<(String, PodName)> {
    let parts: Vec<&str> = text.split('_').collect();
    let [head, container, name, namespace, uid, _attempt] = parts[..] else { return None };
    let uid = PodUid::parse(uid)?;
    let pod = PodName { namespace: Some(namespace.into()), name: Some(name.into()), uid: Some(uid) };
    (head == "k8s").then(|| (container.to_owned(), pod))
}

fn value<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    let at = args.iter().position(|arg| names.contains(&arg.as_str()))?;
    args.get(at + 1).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::{about, hides_programs, is_init, is_init_found, read};

    fn argv(line: &str) -> Vec<String> {
        line.replace("ID", &"a".repeat(64)).split(' ').map(str::to_owned).collect()
    }

    #[track_caller]
    fn id_of(line: &str) -> Option<String> {
        read(&argv(line)).map(|made| made.id.short().to_owned())
    }

    #[test]
    fn what_makes_a_container_names_it() {
        let a = Some("a".repeat(12));
        let shim =
            "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address /run/containerd/containerd.sock";
        assert_eq!(id_of(&format!("{shim} -publish-binary /usr/bin/containerd -id ID start")), a);
        assert_eq!(id_of("/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id ID -address /x"), a);
        assert_eq!(id_of(&format!("{shim} -id ID -bundle /b delete")), None);
        let runc = "runc --root /run/containerd/runc/k8s.io --log /l --log-format json";
        assert_eq!(id_of(&format!("{runc} create --bundle /b/ID --pid-file /b/init.pid ID")), a);
        assert_eq!(id_of(&format!("{runc} kill ID 9")), None);
        assert_eq!(id_of(&format!("{runc} delete --force ID")), None);
        assert_eq!(id_of(&format!("{runc} state ID")), None);
        assert_eq!(id_of("/bin/sh -c create"), None);
        assert_eq!(id_of("containerd-shim-runc-v2 -namespace k8s.io -id abcdef"), None);
        assert_eq!(about(&argv(&format!("{runc} kill ID 9"))).map(|id| id.short().to_owned()), a);
        assert_eq!(about(&argv("runc init")), None);
    }

    #[test]
    fn what_hides_the_programs_of_containers_is_known_by_its_name() {
        for (line, path) in [
            (
                "/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -id ID",
                "/opt/kata/bin/containerd-shim-kata-v2",
            ),
            ("containerd-shim-aws-firecracker -id ID", ""),
            ("/usr/bin/containerd-shim-runsc-v1 -id ID", ""),
            ("runsc --root=/run/containerd/runsc/k8s.io create --bundle /b ID", "/usr/bin/runsc"),
            ("runsc-sandbox --root=/run/containerd/runsc/k8s.io boot ID", "/proc/self/exe"),
            ("runsc-gofer gofer --bundle /b", "/proc/self/exe"),
            ("/usr/bin/runsc boot ID", ""),
            // Its arguments were not read.
            ("", "/usr/bin/runsc"),
        ] {
            assert!(hides_programs(&argv(line), path), "{line} {path}");
        }
        for (line, path) in [
            ("/usr/bin/containerd-shim-runc-v2 -id ID", "/usr/bin/containerd-shim-runc-v2"),
            ("containerd-shim -id ID", ""),
            ("runc create --bundle /b ID", "/usr/bin/runc"),
            ("/usr/bin/conmon -c ID", "/usr/bin/conmon"),
            ("/pause", "/pause"),
            ("", ""),
        ] {
            assert!(!hides_programs(&argv(line), path), "{line} {path}");
        }
    }

    #[test]
    fn conmon_knows_the_pod() {
        let made = read(&argv(
            "/usr/bin/conmon -b /b -c ID --exit-dir /e -n k8s_POD_web-0_default_11111111-2222-3333-4444-555555555555_0",
        ))
        .expect("a container");
        let pod = made.pod.expect("its pod");
        assert_eq!((made.name.as_deref(), pod.name.as_deref()), (Some("POD"), Some("web-0")));
        assert_eq!(pod.namespace.as_deref(), Some("default"));
        assert!(read(&argv("/usr/bin/conmon -c ID -n other")).expect("a container").pod.is_none());
    }

    #[test]
    fn a_runtimes_init_is_not_the_container() {
        assert!(is_init("runc:[2:INIT]", &[]));
        assert!(is_init("runc", &argv("runc init")));
        assert!(is_init("exe", &argv("/proc/self/exe init")));
        assert!(!is_init("init", &argv("/sbin/init splash")));
        assert!(!is_init("sh", &argv("sh")));
        assert!(is_init_found("runc", &[]) && !is_init("runc", &[]), "while it is executed");
        assert!(!is_init_found("sh", &[]));
    }
}
