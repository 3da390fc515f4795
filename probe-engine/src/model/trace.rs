//! The place in its caller's trace that a CNI call was given: W3C Trace Context, in the environment.
//!
//! **Invariant:** a value that breaks a rule of the specification is as good as none, and is kept nowhere.

use std::{collections::BTreeSet, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::model::{fact::CniVariables, id::TaskKey};

/// Where a call's span is in the trace of its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    pub parent: TraceParent,
    /// What tracing systems add (`tracestate`); empty if they add nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The plugin that was given the same place and made this call: the call's span is below the plugin's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<TaskKey>,
}

/// The caller's span: `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, JsonSchema)]
#[schemars(with = "String", inline, description = "", extend("pattern" = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"))]
pub struct TraceParent {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

/// A text is not a `traceparent`.
#[derive(Debug)]
pub struct NotATraceParent;

/// The length of a `traceparent`. One of a later version may go on after a dash.
const PARENT_LEN: usize = 55;
/// `sampled`, and `random-trace-id`. The other flags have no meaning yet, and are not passed on.
const SAMPLED: u8 = 1 << 0;
const KNOWN_FLAGS: u8 = SAMPLED | 1 << 1;

/// What a `tracestate` must have room for, and what a longer one loses: all of it.
const MAX_STATE_BYTES: usize = 512;
const MAX_STATE_MEMBERS: usize = 32;
const MAX_KEY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 256;

impl TraceContext {
    /// Reads a call's variables; `None` if they have no valid `TRACEPARENT`.
    pub(crate) fn read(variables: &CniVariables) -> Option<Self> {
        let parent = variables.traceparent.as_deref()?.parse().ok()?;
        let state = variables.tracestate.clone().filter(|text| is_state(text)).unwrap_or_default();
        Some(Self { parent, state, plugin: None })
    }

    pub(crate) fn is_of_other_span(&self, other: &Self) -> bool {
        (self.parent.trace_id, self.parent.span_id) != (other.parent.trace_id, other.parent.span_id)
    }
}

impl TraceParent {
    /// Whether the caller's trace is recorded.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.get(..PARENT_LEN)?.split('-');
        let version = hex(fields.next()?, 2)?;
        let trace_id = hex(fields.next()?, 32)?;
        let span_id = u64::try_from(hex(fields.next()?, 16)?).ok()?;
        let flags = u8::try_from(hex(fields.next()?, 2)?).ok()? & KNOWN_FLAGS;
        let is_whole = match text.as_bytes().get(PARENT_LEN) {
            None => true,
            Some(next) => version > 0 && *next == b'-',
        };
        let is_valid = is_whole && version != 0xff && trace_id != 0 && span_id != 0;
        is_valid.then_some(Self { trace_id, span_id, flags })
    }
}

impl FromStr for TraceParent {
    type Err = NotATraceParent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or(NotATraceParent)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl fmt::Display for NotATraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is not a traceparent of W3C Trace Context")
    }
}

/// Returns the number that so many digits give, all in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == digits && is_hex { u128::from_str_radix(text, 16).ok() } else { None }
}

fn is_state(text: &str) -> bool {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> =
        members.filter(|member| !member.is_empty()).take(MAX_STATE_MEMBERS + 1).collect();
    let mut keys = BTreeSet::new();
    text.len() <= MAX_STATE_BYTES
        && members.len() <= MAX_STATE_MEMBERS
        && members.iter().all(|member| {
            let Some((key, value)) = member.split_once('=') else { return false };
            is_state_key(key) && is_state_value(value) && keys.insert(key)
        })
}

fn is_state_key(key: &str) -> bool {
    key.len() <= MAX_KEY_BYTES
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@'))
        && key.matches('@').count() <= 1
}

fn is_state_value(value: &str) -> bool {
    (1..=MAX_VALUE_BYTES).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

#[cfg(test)]
mod tests {
    use super::{CniVariables, TraceContext};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(traceparent: &str, tracestate: &str) -> Option<(String, String)> {
        let context = TraceContext::read(&CniVariables {
            traceparent: Some(traceparent.to_owned()),
            tracestate: Some(tracestate.to_owned()),
            ..CniVariables::default()
        })?;
        Some((context.parent.to_string(), context.state))
    }

    #[test]
    fn a_valid_context_is_read() {
        let later = format!("{}-more", PARENT.replace("00-4", "cc-4"));
        for text in [PARENT, &later, &PARENT.replace("-01", "-fd")] {
            assert_eq!(read(text, "").map(|(parent, _)| parent).as_deref(), Some(PARENT), "{text}");
        }
        let unsampled = PARENT.replace("-01", "-00");
        let context = TraceContext::read(&CniVariables {
            traceparent: Some(unsampled.clone()),
            ..CniVariables::default()
        });
        assert!(context.is_some_and(|it| !it.parent.is_sampled() && it.parent.to_string() == unsampled));
        for state in ["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", "a@b= x , ,c/d=~", "a=1,"] {
            assert_eq!(read(PARENT, state).map(|(_, state)| state).as_deref(), Some(state), "{state}");
        }
    }

    #[test]
    fn an_invalid_traceparent_is_as_good_as_none() {
        let hostile = [
            "",
            "00",
            "00-",
            &PARENT[..54],
            &format!("{PARENT}-"),
            &format!("{PARENT}0"),
            &format!(" {PARENT}"),
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.replace("00-4", "cc-4").replace("-01", "-01x"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT.replace("4bf9", "+bf9"),
            &PARENT.replace("-00f0", "--0f0"),
            &PARENT.replace("-01", "-é"),
            &"-".repeat(55),
            &"é".repeat(40),
        ];
        for text in hostile {
            assert_eq!(read(text, "a=b"), None, "{text:?}");
        }
    }

    /// The specification keeps `traceparent` then.
    #[test]
    fn an_invalid_tracestate_is_dropped_alone() {
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        let hostile = [
            "a",
            "=b",
            "a=",
            "A=b",
            "a=b=c",
            "a=b,a=c",
            "a@b@c=d",
            "a=é",
            "a=\u{1}",
            &format!("a={}", "b".repeat(257)),
            &format!("a={},b={},c=d", "b".repeat(254), "b".repeat(254)),
            &many.join(","),
        ];
        for state in hostile {
            assert_eq!(read(PARENT, state), Some((PARENT.to_owned(), String::new())), "{state:?}");
        }
    }
}
