//! Lists the files of known problems, with their texts, for `known/file.rs`.

use std::{env, fmt::Write as _, fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("known");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut paths: Vec<_> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut list = "&[\n".to_owned();
    for path in paths {
        let id = path.file_stem().unwrap_or_default().display().to_string();
        _ = writeln!(list, "({id:?}, include_str!({path:?})),");
    }
    list += "]\n";
    fs::write(Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("known.rs"), list)
}
