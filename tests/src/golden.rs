//! Golden files: compares output with earlier output that a person checked.

use std::{env, fs, path::Path};

/// Compares `actual` with the file. If `UPDATE_EXPECT` is set to anything, writes the file instead.
///
/// Panics with the first line that differs.
#[track_caller]
pub fn expect(file: &Path, actual: &str) {
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file, actual).unwrap_or_else(|error| panic!("write {}: {error}", file.display()));
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_else(|error| {
        panic!("read {}: {error}; UPDATE_EXPECT=1 writes it", file.display());
    });
    if actual == expected {
        return;
    }
    let same =
        expected.lines().zip(actual.lines()).take_while(|(expected, actual)| expected == actual).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(its end)").to_owned();
    panic!(
        "{} line {}:\nexpected: {}\n  actual: {}\nUPDATE_EXPECT=1 writes the actual output to the file",
        file.display(),
        same + 1,
        line(&expected),
        line(actual)
    );
}
