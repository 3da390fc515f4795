//! Reads the expiry of a certificate (RFC 5280, 4.1). rustls checks everything else.

use jiff::Timestamp;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The tag of the version, which certificates of the first version do not have.
const VERSION: u8 = 0xa0;

/// When the certificate expires, seconds since the epoch; `None` if the form is unknown.
pub(super) fn expires(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut body, _) = take(certificate, SEQUENCE)?;
    if let Some((_version, rest)) = take(body, VERSION) {
        body = rest;
    }
    // Skip the serial number, the signature algorithm, and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        body = take(body, tag)?.1;
    }
    let (validity, _) = take(body, SEQUENCE)?;
    let (_since, until) = time(validity)?;
    time(until).map(|(at, _)| at)
}

/// The content of the first element, which must have this tag, and the bytes after it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        // The low bits give the number of bytes of the length.
        let (digits, behind) = rest.split_at_checked(length - 0x80)?;
        length = digits
            .iter()
            .try_fold(0_usize, |length, digit| length.checked_mul(256)?.checked_add(usize::from(*digit)))?;
        rest = behind;
    }
    (*found == tag).then_some(())?;
    rest.split_at_checked(length)
}

/// Parses `YYMMDDHHMMSSZ`, also with a four-digit year, and returns the bytes after it, too. The end of the
/// year 9999, which means that a certificate does not expire, is beyond the calendar.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (digits, rest, century) = match take(bytes, UTC_TIME) {
        Some((digits, rest)) => (digits, rest, if digits.first()? < &b'5' { "20" } else { "19" }),
        None => take(bytes, GENERALIZED_TIME).map(|(digits, rest)| (digits, rest, ""))?,
    };
    let text = format!("{century}{}", str::from_utf8(digits).ok().filter(|text| text.is_ascii())?);
    let (date, time) = text.split_at_checked(8)?;
    let (year, day) = date.split_at(4);
    let (month, day) = day.split_at(2);
    let (hour, minute) = time.split_at_checked(2)?;
    let (minute, second) = minute.split_at_checked(2)?;
    let at: Timestamp = format!("{year}-{month}-{day}T{hour}:{minute}:{second}").parse().ok()?;
    // `SSZ`, without fractions and without another zone.
    (second.len() == 3 && second.ends_with('Z')).then_some((at.as_second(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    use super::{GENERALIZED_TIME, UTC_TIME, expires, time};

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let file = super::super::tests::file("server.pem");
        let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
        // `openssl x509 -noout -enddate`: Oct 28 23:50:01 2126 GMT.
        assert_eq!(expires(&certificate), Some(4_948_905_001));
        for cut in 0..certificate.len().min(200) {
            assert_eq!(expires(&certificate[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn both_forms_of_a_time_are_known() {
        let of = |tag: u8, text: &str| {
            let length = u8::try_from(text.len()).expect("short");
            time(&[&[tag, length], text.as_bytes()].concat()).map(|(at, _)| at)
        };
        assert_eq!(of(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(of(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(of(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(of(GENERALIZED_TIME, "20240229120000Z"), Some(1_709_208_000));
        assert_eq!(of(GENERALIZED_TIME, "99991231235959Z"), None, "it does not expire");
        for bad in
            ["", "Z", "7001010000Z", "700101000000", "701301000000Z", "7001010000+0Z", "7001010000\u{e9}Z"]
        {
            assert_eq!(of(UTC_TIME, bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, tag in prop::sample::select(vec![UTC_TIME, GENERALIZED_TIME])) {
            expires(&bytes);
            time(&[&[tag], &bytes[..]].concat());
        }
    }
}
