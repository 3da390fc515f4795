//! Authentication: which clients may ask for what.

use std::{
    fmt,
    net::IpAddr,
    str::FromStr as _,
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderMap, Uri, header, uri::Authority};

use super::{
    reply::ApiError,
    route::{Protection, Route},
};

/// What a network client must present.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    /// A client that gives this token is admitted.
    pub(crate) token: Option<Token>,
    /// Whether a client with a certificate of the client authority is admitted.
    pub(crate) by_certificate: bool,
    /// Whether only requests to a name of this machine are answered. Otherwise, a foreign page in a browser
    /// on this machine could reach the agent by a name that its owner points at this machine (DNS rebinding).
    pub(crate) own_names_only: bool,
}

/// The secret token, which is never shown. All copies share the current value.
#[derive(Clone)]
pub(crate) struct Token(Arc<RwLock<Vec<u8>>>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Over the Unix socket, which only root can open.
    Socket,
    /// Over the network.
    Network { has_certificate: bool, is_loopback: bool },
}

/// The shortest token, characters. 16 random bytes are 22 characters in base64 without padding, and 32 in
/// hex.
const MIN_LENGTH: usize = 16;

impl Token {
    /// Parses the contents of the token file. The error says what is wrong with them.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        Self::parse(text).map(|token| Self(Arc::new(RwLock::new(token))))
    }

    /// Replaces the token in all copies.
    pub(super) fn replace(&self, text: &str) -> Result<(), String> {
        let token = Self::parse(text)?;
        // No holder of the lock panics.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    fn parse(text: &str) -> Result<Vec<u8>, String> {
        let text = text.trim();
        if text.len() < MIN_LENGTH {
            return Err(format!("a token has at least {MIN_LENGTH} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of printable ASCII".to_owned());
        }
        Ok(text.as_bytes().to_vec())
    }

    /// Compares in constant time.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let token = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let differs = token.iter().zip(given.iter()).fold(0, |differs, (one, other)| differs | (one ^ other));
        std::hint::black_box(differs) == 0 && token.len() == given.len()
    }
}

impl Guard {
    pub(super) fn admits(
        &self,
        peer: Peer,
        route: Route,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        let Peer::Network { has_certificate, is_loopback } = peer else { return Ok(()) };
        if self.own_names_only && !is_own_name(uri, headers) {
            return Err(ApiError::Host);
        }
        let is_asked = self.token.is_some() || self.by_certificate;
        let is_free = match route.protection() {
            Protection::Open => true,
            Protection::Machine => is_loopback,
            Protection::Client => false,
        };
        if is_free || !is_asked || (self.by_certificate && has_certificate) || self.has_token(headers) {
            return Ok(());
        }
        Err(ApiError::Unauthorized)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        match (&self.token, bearer(headers)) {
            (Some(token), Some(given)) => token.is(given),
            _ => false,
        }
    }
}

/// The token of an `Authorization` header (RFC 6750, section 2.1); the scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether the request names this machine: by an address, which cannot be redirected, or by `localhost` (RFC
/// 6761, section 6.3).
fn is_own_name(uri: &Uri, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let named = uri.authority().cloned().or_else(|| Authority::from_str(sent?).ok());
    // An HTTP/1.0 client may send no host; a browser always sends one.
    let Some(named) = named else { return sent.is_none() };
    let host = named.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

    use super::{ApiError, Guard, Peer, Route, Token};

    const ANONYMOUS: Peer = Peer::Network { has_certificate: false, is_loopback: false };
    const LOOPBACK: Peer = Peer::Network { has_certificate: false, is_loopback: true };
    const CERTIFIED: Peer = Peer::Network { has_certificate: true, is_loopback: false };

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a value"))])
    }

    fn asked(guard: &Guard, peer: Peer, route: Route, headers: &HeaderMap) -> Result<(), ApiError> {
        guard.admits(peer, route, &Uri::from_static("/"), headers)
    }

    #[test]
    fn a_token_lets_in_and_nothing_like_it_does() {
        let token = Some(Token::new(" 0123456789abcdef\n").expect("a token"));
        let guard = Guard { token, ..Guard::default() };
        let ask = |value| asked(&guard, ANONYMOUS, Route::Pods, &headers(header::AUTHORIZATION, value));
        assert_eq!(ask("Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(ask("bearer 0123456789abcdef"), Ok(()));
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "Bearer",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "",
        ] {
            assert_eq!(ask(wrong), Err(ApiError::Unauthorized), "{wrong:?}");
        }
        let none = HeaderMap::new();
        assert_eq!(asked(&guard, ANONYMOUS, Route::Metrics, &none), Err(ApiError::Unauthorized));
        assert_eq!(asked(&guard, ANONYMOUS, Route::Healthz, &none), Ok(()));
        assert_eq!(asked(&guard, ANONYMOUS, Route::Readyz, &none), Ok(()));
        assert_eq!(asked(&guard, Peer::Socket, Route::Metrics, &none), Ok(()));
        assert_eq!(asked(&guard, ANONYMOUS, Route::Verdict, &none), Err(ApiError::Unauthorized));
        assert_eq!(asked(&guard, LOOPBACK, Route::Verdict, &none), Ok(()));
        assert_eq!(asked(&guard, LOOPBACK, Route::Findings, &none), Err(ApiError::Unauthorized));
        assert_eq!(
            asked(&guard, CERTIFIED, Route::Pods, &none),
            Err(ApiError::Unauthorized),
            "nobody checked it"
        );
    }

    #[test]
    fn a_certificate_lets_in_where_one_is_asked_for() {
        let guard = Guard { by_certificate: true, ..Guard::default() };
        let none = HeaderMap::new();
        assert_eq!(asked(&guard, CERTIFIED, Route::Pods, &none), Ok(()));
        assert_eq!(asked(&guard, ANONYMOUS, Route::Pods, &none), Err(ApiError::Unauthorized));
        assert_eq!(asked(&guard, ANONYMOUS, Route::Healthz, &none), Ok(()));
    }

    #[test]
    fn a_token_is_a_long_word() {
        for bad in ["", "short", "0123456789 abcdef", "0123456789abcdé", "0123456789abcdef\n0123456789abcdef"]
        {
            assert!(Token::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_own_names_reach_an_agent_that_asks_for_nothing() {
        let guard = Guard { own_names_only: true, ..Guard::default() };
        let ask = |host| asked(&guard, ANONYMOUS, Route::Pods, &headers(header::HOST, host));
        for own in ["localhost", "LocalHost:9477", "127.0.0.1:9477", "[::1]:9477", "10.0.0.7"] {
            assert_eq!(ask(own), Ok(()), "{own}");
        }
        for other in
            ["evil.example", "localhost.evil.example:9477", "127.0.0.1.evil.example", "", "a b", "[::1"]
        {
            assert_eq!(ask(other), Err(ApiError::Host), "{other:?}");
        }
        assert_eq!(asked(&guard, ANONYMOUS, Route::Pods, &HeaderMap::new()), Ok(()));
        let absolute = Uri::from_static("http://evil.example/v1/pods");
        let told = headers(header::HOST, "localhost");
        assert_eq!(guard.admits(ANONYMOUS, Route::Pods, &absolute, &told), Err(ApiError::Host));
    }
}
