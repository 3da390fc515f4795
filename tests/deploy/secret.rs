//! The certificate that the chart makes is valid for clients that use OpenSSL.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use tempfile::TempDir;
use tests::command;

use crate::render;

/// Returns the files of the Secret.
fn secret() -> Result<TempDir> {
    let objects = render::rendered(&[])?;
    let data = render::only(&objects, "Secret")?["data"].clone();
    let dir = tempfile::tempdir()?;
    for (name, value) in data.as_object().context("a Secret with data")? {
        let bytes = BASE64_STANDARD.decode(value.as_str().context("text")?)?;
        fs::write(dir.path().join(name), bytes)?;
    }
    Ok(dir)
}

fn openssl(arguments: &[&str]) -> Result<String> {
    command::output("openssl", arguments)
}

fn subject(file: &Path) -> Result<String> {
    let file = file.display().to_string();
    openssl(&["x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", &file])
}

/// OpenSSL takes a leaf with its authority's subject for self-signed and refuses it (error 18 of
/// verify(1ossl)).
#[test]
fn openssl_accepts_the_certificate_with_its_authority() -> Result<()> {
    let dir = secret()?;
    let (authority, leaf) = (dir.path().join("ca.crt"), dir.path().join("tls.crt"));
    ensure!(subject(&authority)? != subject(&leaf)?, "both are {}", subject(&leaf)?);
    let (authority, leaf) = (authority.display().to_string(), leaf.display().to_string());
    let verify = |wanted: &[&str]| {
        let common = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", &authority];
        openssl(&[&common[..], wanted, &[&leaf]].concat())
    };
    // The name in the PodMonitor, and the names that a command on the node uses.
    for wanted in
        [["-verify_hostname", "sandprobe"], ["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"]]
    {
        let output = verify(&wanted)?;
        ensure!(output.trim_end().ends_with(": OK"), "{wanted:?}: {output}");
    }
    ensure!(verify(&["-verify_hostname", "example.com"]).is_err(), "the certificate is valid for any name");
    Ok(())
}
