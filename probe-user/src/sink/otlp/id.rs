//! Ids of traces and spans, derived from their subjects. So an agent that sends a trace again uses the same
//! ids.

use ring::digest::{Context, SHA256};

/// The kind of a trace. Its name is part of the trace's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Start,
    Teardown,
    Boot,
    /// A CNI call, in its caller's trace.
    Call,
    /// The setup of a sandbox, in the trace of who calls its plugins.
    Setup,
}

impl Of {
    fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Teardown => "teardown",
            Self::Boot => "boot",
            Self::Call => "call",
            Self::Setup => "setup",
        }
    }
}

/// A trace's id, or what the ids of spans in another's trace are made from. The parts name the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId([u8; 16]);

impl TraceId {
    pub(super) fn new(of: Of, boot_id: &str, parts: &[&str]) -> Self {
        let parts = [of.as_str(), boot_id].into_iter().chain(parts.iter().copied());
        Self(digest(parts.map(str::as_bytes)))
    }

    /// The id of the trace's span with this number.
    pub(super) fn span(self, number: u32) -> [u8; 8] {
        digest([&self.0[..], &number.to_be_bytes()])
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// The first bytes of a SHA-256 of the parts, each after its length.
fn digest<'a, const N: usize>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; N] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    let mut first = [0; N];
    first.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    first
}

#[cfg(test)]
mod tests {
    use super::{Of, TraceId};

    #[test]
    fn ids_are_of_all_parts_and_of_nothing_else() {
        let id = TraceId::new(Of::Start, "boot", &["sandbox"]);
        assert_eq!(id, TraceId::new(Of::Start, "boot", &["sandbox"]));
        assert_eq!(id.span(0), id.span(0));
        assert_ne!(id.span(0), id.span(1));
        for other in [
            TraceId::new(Of::Teardown, "boot", &["sandbox"]),
            TraceId::new(Of::Start, "boots", &["andbox"]),
            TraceId::new(Of::Start, "boot", &["sandbox", ""]),
            TraceId::new(Of::Start, "boot", &["sand", "box"]),
        ] {
            assert_ne!(id, other);
        }
        // Every version of the agent must give these ids. They are from Python's hashlib, over 8-byte lengths
        // and parts.
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&id.bytes()), "1f996512ca88cb01cdb144c1dc97be9d");
        assert_eq!(hex(&id.span(0)), "d5d1a656e7e93588");
    }
}
