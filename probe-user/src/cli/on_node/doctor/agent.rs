//! The checks of the agent that runs on this node, if one does, and of what only an agent counts.

use serde::Deserialize;

use super::netns;
use crate::{
    cli::client::{AgentArgs, DOCTOR},
    sink::render::doctor::Check,
};

/// The needed part of `/v1/doctor`.
#[derive(Deserialize)]
struct Answer {
    version: String,
    agent: Agent,
}

#[derive(Deserialize)]
struct Agent {
    pid: u32,
    since: String,
    reasons: Vec<String>,
    /// An older agent does not have this member.
    #[serde(default)]
    degraded: Vec<String>,
    /// It does not have this one either.
    netns: Option<netns::Namespaces>,
}

const NAME: &str = "agent";

pub(super) fn checks(args: &AgentArgs) -> Vec<Check> {
    match args.ask(DOCTOR) {
        Ok(None) => vec![Check::full(NAME, "none answers")],
        Ok(Some(bytes)) => answered(&bytes),
        Err(error) => {
            vec![Check::degraded(NAME, format!("{error:#}"), "see that it works, and ask as root")]
        }
    }
}

fn answered(bytes: &[u8]) -> Vec<Check> {
    let answer: Answer = match serde_json::from_slice(bytes) {
        Ok(answer) => answer,
        Err(error) => {
            let found = format!("the answer is not that of this version of sandprobe: {error}");
            return vec![Check::degraded(NAME, found, "use the sandprobe of the version that runs")];
        }
    };
    let netns = answer.agent.netns.as_ref().and_then(netns::check);
    [of_agent(&answer)].into_iter().chain(netns).collect()
}

fn of_agent(Answer { version, agent }: &Answer) -> Check {
    let found = format!("version {version} runs as pid {} since {}", agent.pid, agent.since);
    let mut found = match &*agent.reasons {
        [] => format!("{found}, and is ready"),
        reasons => format!("{found}, and is not ready: {}", reasons.join("; ")),
    };
    if agent.reasons.is_empty() && agent.degraded.is_empty() {
        return Check::full(NAME, found);
    }
    for degraded in &agent.degraded {
        found += "; degraded: ";
        found += degraded;
    }
    Check::degraded(NAME, found, "see what it has logged")
}

#[cfg(test)]
mod tests {
    use crate::sink::render::doctor::Grade;

    #[test]
    fn an_agent_is_ready_or_says_why_not() {
        let answer = |reasons: &str| {
            format!(
                r#"{{"version":"0.1.0","more":1,"agent":{{"pid":7,"since":"then","reasons":[{reasons}],"x":1}}}}"#
            )
        };
        let told = |bytes: &[u8]| super::answered(bytes).remove(0);
        let ready = told(answer("").as_bytes());
        assert_eq!(
            (ready.grade, &*ready.found),
            (Grade::Full, "version 0.1.0 runs as pid 7 since then, and is ready")
        );
        let not = told(answer(r#""a","b""#).as_bytes());
        assert_eq!(not.grade, Grade::Degraded);
        assert!(not.found.ends_with("not ready: a; b"), "{}", not.found);
        let degraded =
            br#"{"version":"0","agent":{"pid":7,"since":"then","reasons":[],"degraded":["no room"]}}"#;
        let degraded = told(degraded);
        assert_eq!(degraded.grade, Grade::Degraded);
        assert!(degraded.found.ends_with("and is ready; degraded: no room"), "{}", degraded.found);
        assert_eq!(told(b"[]").grade, Grade::Degraded);
    }
}
