//! The troubles of an agent that is ready.

use std::{io, path::Path};

use super::{Bench, block_on};
use crate::sink::state::state_writes::StateFile;

#[test]
fn an_agent_that_cannot_write_its_state_is_ready_and_degraded() {
    block_on(async {
        let bench = Bench::new();
        let write = |done| bench.app.config.state_writes.note(StateFile::Findings, Path::new("/s"), done);
        write(Err(io::ErrorKind::ReadOnlyFilesystem.into()));
        let said = "findings cannot be kept in /s (--state-dir): read-only filesystem or storage medium; mount it \
                    writable or name another directory";
        let ready = bench.get("/readyz").await;
        assert_eq!((ready.status, ready.text()), (200, format!("ok\ndegraded: {said}\n")));
        let agent = &bench.get("/v1/doctor").await.json()["agent"];
        assert_eq!((&agent["ready"], &agent["degraded"]), (&true.into(), &serde_json::json!([said])));
        write(Ok(()));
        let stream = &bench.app.config.stream_trouble;
        stream.failing(Some("cannot write to /log".to_owned()));
        assert_eq!(bench.get("/readyz").await.text(), "ok\ndegraded: cannot write to /log\n");
        stream.failing(None);
        assert_eq!(bench.get("/readyz").await.text(), "ok\n");
        assert_eq!(bench.get("/v1/doctor").await.json()["agent"]["degraded"], serde_json::json!([]));
    });
}

/// The reason is in all places, from the start on, and each file has the same.
#[test]
fn an_agent_whose_state_directory_cannot_be_made_is_degraded_from_the_start_on() {
    block_on(async {
        let bench = Bench::new();
        let writes = &bench.app.config.state_writes;
        writes.make(Path::new("/proc/x"));
        let said = "nothing can be kept in /proc/x (--state-dir), which cannot be made: No such file or directory (os error 2); \
                    name another directory, and start sandprobe again";
        for _ in 0..2 {
            let ready = bench.get("/readyz").await;
            assert_eq!((ready.status, ready.text()), (200, format!("ok\ndegraded: {said}\n")));
            let agent = &bench.get("/v1/doctor").await.json()["agent"];
            assert_eq!((&agent["ready"], &agent["degraded"]), (&true.into(), &serde_json::json!([said])));
            for file in [StateFile::Findings, StateFile::Checkpoint] {
                writes.note(file, Path::new("/proc/x"), Err(io::ErrorKind::PermissionDenied.into()));
            }
        }
    });
}
