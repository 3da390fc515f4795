//! Reads a daemon's TOML configuration, as the daemon itself would.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use crate::source::host::{HostRoot, ReadError};

/// The longest configuration that is read, bytes.
const MAX_BYTES: usize = 256 << 10;

/// A configuration file that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadSetting {
    pub(crate) path: PathBuf,
    pub(crate) why: ReadError,
}

/// Reads a whole file, and follows links.
pub(crate) fn read(files: &HostRoot, path: &Path) -> Result<Vec<u8>, UnreadSetting> {
    bounded(files, path).map_err(|why| UnreadSetting { path: path.to_owned(), why })
}

fn bounded(files: &HostRoot, path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let room = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    files.plain(path)?.take(room).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES { Err(ReadError::TooLarge(MAX_BYTES)) } else { Ok(bytes) }
}

/// Parses a configuration file; `None` if it does not exist.
pub(crate) fn table(files: &HostRoot, path: &Path) -> Result<Option<Table>, UnreadSetting> {
    let bytes = match read(files, path) {
        Err(UnreadSetting { why: ReadError::Absent, .. }) => return Ok(None),
        read => read?,
    };
    let parsed = str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
    parsed.map(Some).ok_or_else(|| UnreadSetting { path: path.to_owned(), why: ReadError::Malformed })
}

/// Returns the text at the end of these keys. An empty text counts as unset.
pub(crate) fn text<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a str> {
    value(table, keys)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the value at the end of these keys.
pub(crate) fn value<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (last, before) = keys.split_last()?;
    before.iter().try_fold(table, |table, key| table.get(*key)?.as_table())?.get(*last)
}

/// Returns the texts in the list at the end of these keys.
pub(crate) fn texts<'a>(table: &'a Table, keys: &[&str]) -> Vec<&'a str> {
    let list = value(table, keys).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).filter(|text| !text.is_empty()).collect()
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
