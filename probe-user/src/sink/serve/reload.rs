//! Reads the server's certificate, key and token again when their files change, because an agent runs longer
//! than a certificate is valid. If the new files cannot be used, the server logs that and keeps the old ones.
//! (rustls accepts a new configuration, but does not watch files.)

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
};

use tracing::{info, warn};

use super::{
    guard::Token,
    tls::{self, Tls},
};
use crate::{
    bounded_read,
    sink::{
        metrics::agent_stats::ServerFiles,
        net::reloading_files::{CHECK_INTERVAL, ReloadingFiles},
    },
};

/// Makes the thread compare the files now.
#[derive(Clone, Debug)]
pub(crate) struct Bell(SyncSender<()>);

impl Bell {
    pub(crate) fn ring(&self) {
        // If the bell has already rung, that is enough.
        self.0.try_send(()).ok();
    }
}

/// The files, and what is configured from them.
#[derive(Debug)]
pub(crate) struct Reload {
    tls: Option<(tls::Paths, Tls)>,
    token: Option<(PathBuf, Token)>,
    files: ReloadingFiles,
    stale: Arc<AtomicBool>,
    bell: (Bell, Receiver<()>),
}

impl Default for Reload {
    /// Without files.
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Reload {
    /// Watches files that have just been read.
    #[must_use]
    pub(crate) fn new(tls: Option<(tls::Paths, Tls)>, token: Option<(PathBuf, Token)>) -> Self {
        let (ring, rung) = mpsc::sync_channel(1);
        let of_tls = tls.iter().flat_map(|(paths, _)| paths.all()).map(ToOwned::to_owned);
        let paths: Vec<PathBuf> = of_tls.chain(token.iter().map(|(path, _)| path.clone())).collect();
        Self {
            tls,
            token,
            files: ReloadingFiles::new(paths),
            stale: Arc::default(),
            bell: (Bell(ring), rung),
        }
    }

    /// The bell that makes the thread read the files at once.
    #[must_use]
    pub(crate) fn bell(&self) -> Bell {
        self.bell.0.clone()
    }

    /// The state of the files, for the metrics.
    #[must_use]
    pub(crate) fn shown(&self) -> ServerFiles {
        let expiry = self.tls.as_ref().map(|(_, tls)| tls.expiry());
        ServerFiles { stale: Arc::clone(&self.stale), expiry }
    }

    /// Starts a thread that compares the files from time to time, and whenever the bell rings. Without files
    /// there is no thread.
    pub(crate) fn start(mut self) -> std::io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        thread::Builder::new().name("reload".to_owned()).spawn(move || {
            loop {
                // Waits until the bell rings or the time is over.
                self.bell.1.recv_timeout(CHECK_INTERVAL).ok();
                match self.check() {
                    None => {}
                    Some(Ok(())) => info!("the server's certificate, key or token was read again"),
                    Some(Err(why)) => {
                        warn!(%why, "the server goes on with the certificate, key or token that it has")
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Compares the files; `None` if nothing changed.
    fn check(&mut self) -> Option<Result<(), String>> {
        let Self { tls, token, files, .. } = self;
        let done = files.check(|| take(tls.as_ref(), token.as_ref()));
        self.stale.store(self.files.is_stale(), Ordering::Relaxed);
        done
    }
}

/// Uses all new files, or none of them.
fn take(tls: Option<&(tls::Paths, Tls)>, token: Option<&(PathBuf, Token)>) -> Result<(), String> {
    let fresh = tls.map(|(paths, _)| tls::load(paths.files()));
    let fresh = fresh.transpose().map_err(|why| why.to_string())?;
    if let Some((path, token)) = token {
        let text = bounded_read::read_text(path).map_err(|why| why.to_string());
        let replaced = text.and_then(|text| token.replace(&text));
        replaced.map_err(|why| format!("{}: {why}", path.display()))?;
    }
    if let (Some(fresh), Some((_, tls))) = (fresh, tls) {
        tls.replace(fresh);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        sync::atomic::Ordering,
        thread,
        time::{Duration, Instant},
    };

    use super::{CHECK_INTERVAL, Reload, ServerFiles, Tls, Token, tls};

    /// A Secret as the kubelet mounts it: each file is a link through `..data`, and that link is replaced.
    struct Secret(tempfile::TempDir);

    impl Secret {
        fn new(certificate: &str, key: &str, token: &str) -> Self {
            let secret = Self(tempfile::tempdir().expect("a directory"));
            secret.put("..1", certificate, key, token);
            for name in ["tls.crt", "tls.key", "token"] {
                symlink(Path::new("..data").join(name), secret.path(name)).expect("a link");
            }
            secret
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, version: &str, certificate: &str, key: &str, token: &str) {
            fs::create_dir(self.path(version)).expect("a directory");
            for (name, from) in [("tls.crt", certificate), ("tls.key", key)] {
                fs::copy(tls::tests::file(from), self.path(version).join(name)).expect("a copy");
            }
            fs::write(self.path(version).join("token"), token).expect("a file");
            symlink(version, self.path("..new")).expect("a link");
            fs::rename(self.path("..new"), self.path("..data")).expect("exchanged");
        }

        fn open(&self) -> (Reload, Tls, Token) {
            let paths = tls::Paths {
                certificate: self.path("tls.crt"),
                key: self.path("tls.key"),
                client_authority: None,
            };
            let tls = Tls::new(tls::load(paths.files()).expect("good files"));
            let text = fs::read_to_string(self.path("token")).expect("a file");
            let token = Token::new(&text).expect("a token");
            let reload = Reload::new(Some((paths, tls.clone())), Some((self.path("token"), token.clone())));
            (reload, tls, token)
        }
    }

    const OLD: &str = "0123456789abcdef";
    const NEW: &str = "fedcba9876543210";

    #[test]
    fn what_a_kubelet_exchanges_is_taken_and_what_is_broken_is_not() {
        let secret = Secret::new("server.pem", "server.key", OLD);
        let (mut reload, tls, token) = secret.open();
        let ServerFiles { stale, expiry } = reload.shown();
        let is_stale = || stale.load(Ordering::Relaxed);
        let (first, expires) = (tls.current(), expiry.expect("a certificate"));
        let before = expires.at();
        let is_first = || std::ptr::eq(&**first.config(), &**tls.current().config());
        assert_eq!(reload.check(), None);

        // The key belongs to another certificate, so the new token is not used either.
        secret.put("..2", "server.pem", "client.key", NEW);
        let why = reload.check().expect("it is new").expect_err("they do not fit");
        assert!(why.contains("TLS with these files does not work"), "{why}");
        assert!(is_first() && is_stale() && token.is(OLD.as_bytes()) && expires.at() == before);
        assert_eq!(reload.check(), None, "told once");

        secret.put("..3", "client.pem", "client.key", NEW);
        assert_eq!(reload.check(), Some(Ok(())));
        assert!(!is_first() && !is_stale() && token.is(NEW.as_bytes()) && !token.is(OLD.as_bytes()));
        let of_client = tls::load(tls::Files {
            certificate: &tls::tests::file("client.pem"),
            key: &tls::tests::file("client.key"),
            client_authority: None,
        });
        let of_client = Tls::new(of_client.expect("good files")).expiry().at();
        assert!(of_client.is_some() && expires.at() == of_client, "it is the new one's");

        // A file is missing, as between two steps of a manual update; then it is back.
        fs::remove_file(secret.path("..3/tls.key")).expect("it was there");
        assert!(reload.check().is_some_and(|it| it.is_err()) && is_stale());
        fs::copy(tls::tests::file("client.key"), secret.path("..3/tls.key")).expect("a copy");
        assert_eq!((reload.check(), is_stale()), (None, false));

        secret.put("..4", "client.pem", "client.key", "short");
        assert!(reload.check().is_some_and(|it| it.is_err()) && token.is(NEW.as_bytes()));
    }

    #[test]
    fn the_bell_makes_it_read_the_files_at_once() {
        let secret = Secret::new("server.pem", "server.key", OLD);
        let (reload, _, token) = secret.open();
        let bell = reload.bell();
        reload.start().expect("a thread");
        secret.put("..2", "server.pem", "server.key", NEW);
        // Further rings while it works do not wait.
        (0..3).for_each(|_| bell.ring());
        let begun = Instant::now();
        while !token.is(NEW.as_bytes()) {
            assert!(begun.elapsed() < CHECK_INTERVAL / 2, "it waits for its time");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
