//! What is known of the other end of a connection: its URL, its certificates, and when it wants to be asked
//! again.

pub(crate) mod authorities;
pub(crate) mod pem;
pub(crate) mod retry_after;
pub(crate) mod url;
