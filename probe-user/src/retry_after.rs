//! When an HTTP server asks its client to come back.

use std::time::Duration;

use http::{HeaderMap, header};
use jiff::{Timestamp, fmt::rfc2822};

/// How long the server asks to wait (`Retry-After`, a number of seconds or a date).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(at.duration_since(Timestamp::now())).ok()
}
