//! Checks the limit of open files. With too few files the agent could neither attach hooks nor answer
//! requests, and each failure would have another message.

use anyhow::anyhow;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Enough to attach hooks, to read the node's files, and to serve some clients.
const MIN_FILES: u64 = 128;
/// Also enough for the most clients that are served at the same time.
const WANTED_FILES: u64 = 1024;

/// Raises the limit if that is needed and permitted.
pub(super) fn allow() -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = wanted(soft, hard)?;
    if limit > soft {
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
    }
    Ok(())
}

fn wanted(soft: u64, hard: u64) -> anyhow::Result<u64> {
    let limit = soft.max(hard.min(WANTED_FILES));
    if limit < MIN_FILES {
        return Err(anyhow!(
            "{limit} open files are too few for sandprobe, which needs {MIN_FILES}, better {WANTED_FILES}: raise the limit \
             (ulimit -n; LimitNOFILE= of a systemd unit)"
        ));
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_too_few_are_told_in_one_line() {
        let limit = |soft, hard| wanted(soft, hard).map_err(|why| why.to_string());
        assert_eq!(limit(1024, 524_288), Ok(1024));
        assert_eq!(limit(65_536, 65_536), Ok(65_536));
        assert_eq!(limit(40, 524_288), Ok(1024));
        assert_eq!(limit(40, 256), Ok(256));
        let why = limit(40, 64).expect_err("too few");
        assert!(why.starts_with("64 open files are too few") && why.contains("ulimit -n"), "{why}");
    }
}
