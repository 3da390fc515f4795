//! Headers of requests, from a file or from the environment. Most of them are credentials, so they are never
//! shown.

use form_urlencoded::parse as decode_plus;
use http::{HeaderName, HeaderValue};

/// Headers that only the sender itself sets.
const OWN: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-timeout",
    "host",
    "te",
    "transfer-encoding",
    "user-agent",
];

pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Parses the headers of a file, one `name: value` a line. Empty lines and lines that begin with `#` are
/// ignored.
pub(crate) fn in_file(text: &str) -> Result<Headers, String> {
    let mut headers = Headers::new();
    for (line, number) in text.lines().zip(1_u32..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = match line.split_once(':') {
            Some((name, value)) => header(name, value),
            None => Err("it is not \"name: value\"".to_owned()),
        };
        headers.push(parsed.map_err(|why| format!("line {number}: {why}"))?);
    }
    Ok(headers)
}

/// Parses the headers of `OTEL_EXPORTER_OTLP_HEADERS`.
pub(crate) fn in_list(text: &str) -> Result<Headers, String> {
    pairs(text)?.iter().map(|(name, value)| header(name, value)).collect()
}

/// Parses `name=value,name=value` with percent-encoded values, as in the environment variables of
/// OpenTelemetry.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    for (part, number) in text.split(',').zip(1_u32..) {
        if part.trim().is_empty() {
            continue;
        }
        match part.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                pairs.push((name.trim().to_owned(), decoded(value.trim())));
            }
            // The part may be a secret, so it is not repeated.
            _ => return Err(format!("part {number} is not \"name=value\"")),
        }
    }
    Ok(pairs)
}

/// Resolves percent-encoding.
fn decoded(text: &str) -> String {
    // Outside of a form, `+`, `&` and `=` mean themselves.
    let plain = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    decode_plus(plain.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = name.trim();
    let parsed: HeaderName = name.parse().map_err(|_error| format!("{name:?} is not a header name"))?;
    if OWN.contains(&parsed.as_str()) || parsed.as_str().ends_with("-bin") {
        return Err(format!("the header {name} cannot be set"));
    }
    let mut value = HeaderValue::from_str(value.trim())
        .map_err(|_error| format!("the value of the header {name} has characters that no header has"))?;
    if value.to_str().is_err() {
        return Err(format!("the value of the header {name} has characters that no header has"));
    }
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::{Headers, in_file, in_list, pairs};

    fn told(headers: Headers) -> Vec<(String, String)> {
        let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
        headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
    }

    fn own(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_file_has_a_header_in_each_line() {
        let text = "# a note\n\nAuthorization: Bearer a+b=c\nx-tenant:  7 \n";
        let all = told(in_file(text).expect("headers"));
        assert_eq!(all, own(&[("authorization", "Bearer a+b=c"), ("x-tenant", "7")]));
    }

    #[test]
    fn the_variable_has_pairs_in_percent_encoding() {
        let all = told(in_list("authorization=Basic%20YWJj=, x-a=b+c&d%2Ce,").expect("headers"));
        assert_eq!(all, own(&[("authorization", "Basic YWJj="), ("x-a", "b+c&d,e")]));
        let all = pairs("k8s.cluster.name=east,team=caf%C3%A9").expect("pairs");
        assert_eq!(all, own(&[("k8s.cluster.name", "east"), ("team", "caf\u{e9}")]));
    }

    #[test]
    fn a_mistake_is_told_without_what_may_be_secret() {
        for (text, why) in [
            ("a: b\nsecret", "line 2: it is no"),
            ("a b: secret", "line 1: \"a b\" is not a header name"),
            ("Content-Type: secret", "line 1: the header Content-Type cannot be set"),
            ("x-bin: secret", "line 1: the header x-bin cannot be set"),
            ("x: secret\u{e9}", "line 1: the value of the header x has"),
        ] {
            let error = in_file(text).expect_err("a mistake");
            assert!(error.starts_with(why) && !error.contains("secret"), "{text:?}: {error}");
        }
        for (text, why) in [("a=b,secret", "part 2"), ("=secret", "part 1"), ("te=secret", "the header te")] {
            let error = in_list(text).expect_err("a mistake");
            assert!(error.contains(why) && !error.contains("secret"), "{text:?}: {error}");
        }
    }
}
