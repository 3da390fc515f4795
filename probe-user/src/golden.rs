//! Documents that are made by the program and kept in the repository.

use std::{env, fs, path::Path};

/// Compares `told` with the file at this path of the repository. With `UPDATE_EXPECT` set, the file is written instead.
#[track_caller]
pub(crate) fn expect(path: &str, told: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, told).expect(path);
    }
    let expected = fs::read_to_string(&file).expect(path);
    let differs = expected.lines().zip(told.lines()).position(|(expected, told)| expected != told);
    assert!(expected == told, "{path} differs from line {differs:?} on: UPDATE_EXPECT=1 writes it");
}
