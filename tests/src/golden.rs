//! Golden files: output is compared with earlier output that a person checked.

use std::{env, fs, path::Path};

/// Compares `told` with the file; with `UPDATE_EXPECT` set to anything, the file is written instead.
///
/// Panics with the first line that differs.
#[track_caller]
pub fn expect(file: &Path, told: &str) {
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file, told).unwrap_or_else(|error| panic!("write {}: {error}", file.display()));
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_else(|error| {
        panic!("read {}: {error}; UPDATE_EXPECT=1 writes it", file.display());
    });
    if told == expected {
        return;
    }
    let same = expected.lines().zip(told.lines()).take_while(|(expected, told)| expected == told).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(its end)").to_owned();
    panic!(
        "{} line {}:\nexpected: {}\n    told: {}\nUPDATE_EXPECT=1 takes what is told as right",
        file.display(),
        same + 1,
        line(&expected),
        line(told)
    );
}
