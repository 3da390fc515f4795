//! Packs the files of known problems, with their ids, for `known/file.rs`.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("known");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut paths: Vec<_> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut whole = String::new();
    for path in paths {
        let id = path.file_stem().unwrap_or_default().display().to_string();
        whole += &format!("{id}\0{}\0", fs::read_to_string(&path)?);
    }
    let packed = lz4_flex::block::compress_prepend_size(whole.as_bytes());
    fs::write(Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("known.lz4"), packed)
}
