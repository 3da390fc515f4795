//! A daemon's configuration in TOML, as the daemon itself would read it.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use toml::Table;

use crate::source::host::{HostRoot, ReadError};

/// Longest configuration taken, bytes.
const LONGEST: usize = 256 << 10;

/// A file that says where things are, and why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source::backfill) struct Unread {
    pub(in crate::source::backfill) path: PathBuf,
    pub(in crate::source::backfill) why: ReadError,
}

/// The whole of a file, links followed.
pub(super) fn read(files: &HostRoot, path: &Path) -> Result<Vec<u8>, Unread> {
    let read = || {
        let mut bytes = Vec::new();
        let room = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
        files.plain(path)?.take(room).read_to_end(&mut bytes)?;
        if bytes.len() > LONGEST { Err(ReadError::TooLarge(LONGEST)) } else { Ok(bytes) }
    };
    read().map_err(|why| Unread { path: path.to_owned(), why })
}

/// A file of settings; `None` if it is not there.
pub(super) fn table(files: &HostRoot, path: &Path) -> Result<Option<Table>, Unread> {
    let bytes = match read(files, path) {
        Err(Unread { why: ReadError::Absent, .. }) => return Ok(None),
        read => read?,
    };
    let parsed = str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
    parsed.map(Some).ok_or_else(|| Unread { path: path.to_owned(), why: ReadError::Malformed })
}

/// The text at the end of these keys; an empty one says nothing.
pub(super) fn text<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a str> {
    let (last, before) = keys.split_last()?;
    let inner = before.iter().try_fold(table, |table, key| table.get(*key)?.as_table())?;
    inner.get(*last)?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::Table;

    use super::text;

    #[test]
    fn a_setting_is_found_by_its_keys() {
        let table: Table = "root = '/r'\nempty = ''\nodd = 7\n[a.'b.c']\nd = 'e'\n".parse().expect("TOML");
        assert_eq!(text(&table, &["root"]), Some("/r"));
        assert_eq!(text(&table, &["a", "b.c", "d"]), Some("e"));
        for none in [&["empty"][..], &["odd"], &["a"], &["root", "x"], &[]] {
            assert_eq!(text(&table, none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(source: String, key: String) {
            source.parse::<Table>().ok().and_then(|table| text(&table, &[&key]).map(str::to_owned));
        }
    }
}
