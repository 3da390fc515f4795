//! What the HTTP server and the clients of other servers share: certificates, URLs, and the queue to the
//! agent's loop.

pub(crate) mod authorities;
pub(crate) mod loop_queue;
pub(crate) mod pem;
pub(crate) mod reloading_files;
pub(crate) mod url;
