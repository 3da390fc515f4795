//! The workload of a pod, guessed from its name.
//!
//! **Invariant:** it is a guess from the name alone, and is called one wherever it is shown.

/// The characters of Kubernetes' random names (`SafeEncodeString`): no vowels, and no digits that look like
/// letters.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The number of random characters in a pod's generated name (`generateName`).
const SUFFIX: usize = 5;

/// The likely name of the workload of a pod with this name:
///
/// * `NAME-HASH-xxxxx`: a Deployment, by its ReplicaSet (a hash of 8 to 10 safe characters);
///
/// * `NAME-MINUTES-xxxxx`: a CronJob, by its Job (8 digits: minutes since the epoch);
///
/// * `NAME-xxxxx`: a DaemonSet, a Job or a bare ReplicaSet;
///
/// * `NAME-N`: a StatefulSet;
///
/// * any other: the pod itself, as a bare or static pod.
pub(super) fn of(pod: &str) -> &str {
    let Some((rest, last)) = pod.rsplit_once('-').filter(|(rest, _)| !rest.is_empty()) else { return pod };
    if is_ordinal(last) {
        return rest;
    }
    if last.len() != SUFFIX || !is_safe(last) {
        return pod;
    }
    match rest.rsplit_once('-') {
        Some((name, part)) if !name.is_empty() && (is_hash(part) || is_minutes(part)) => name,
        _ => rest,
    }
}

fn is_safe(text: &str) -> bool {
    text.bytes().all(|byte| SAFE.contains(&byte))
}

fn is_hash(text: &str) -> bool {
    (8..=10).contains(&text.len()) && is_safe(text)
}

/// The minutes of a CronJob's Job, from 1989 to 2160.
fn is_minutes(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A StatefulSet counts from 0 or from its start ordinal. A larger number is more likely a date.
fn is_ordinal(text: &str) -> bool {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_workload_is_what_its_pods_names_have_in_common() {
        for (pod, workload) in [
            ("web-6d4cf56db6-x7kzp", "web"),
            ("coredns-5d78c9869d-4bq2z", "coredns"),
            ("report-28745600-zt9xk", "report"),
            ("kube-proxy-x8k2z", "kube-proxy"),
            ("import-x8k2z", "import"),
            ("db-0", "db"),
            ("db-11", "db"),
            ("my-db-primary-3", "my-db-primary"),
            // A bare pod, or a name that shows nothing.
            ("web", "web"),
            ("kube-apiserver-node-a", "kube-apiserver-node-a"),
            ("my-nginx", "my-nginx"),
            ("backup-2024", "backup"),
            ("backup-20240101", "backup-20240101"),
            ("a-007", "a-007"),
            ("-x8k2z", "-x8k2z"),
            ("-0", "-0"),
            ("", ""),
            ("é-0", "é"),
        ] {
            assert_eq!(of(pod), workload, "{pod}");
        }
    }
}
