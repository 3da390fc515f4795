//! Documents that the program makes, or whose tables it must match, and that are kept in the repository.

use std::{collections::BTreeSet, env, fs, path::Path};

/// Compares `made` with the file at this path of the repository. With `UPDATE_EXPECT` set, the file is
/// written instead. Panics with the lines that only one of the two has.
#[track_caller]
pub(crate) fn expect(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, made).expect(path);
    }
    let kept = fs::read_to_string(&file).expect(path);
    if kept != made {
        let kept = kept.lines().map(str::to_owned).collect();
        let made = made.lines().map(str::to_owned).collect();
        let difference = difference(&kept, &made);
        panic!("{path}: {}; UPDATE_EXPECT=1 writes it", difference.unwrap_or("the order differs".to_owned()));
    }
}

/// Compares the names that a page documents with those of the code. Panics with the names that only one of
/// the two has.
#[track_caller]
pub(crate) fn same_names(documented: &BTreeSet<String>, in_code: &BTreeSet<String>) {
    if let Some(difference) = difference(documented, in_code) {
        panic!("{difference}");
    }
}

fn difference(documented: &BTreeSet<String>, in_code: &BTreeSet<String>) -> Option<String> {
    let missing: Vec<_> = in_code.difference(documented).collect();
    let unknown: Vec<_> = documented.difference(in_code).collect();
    (!missing.is_empty() || !unknown.is_empty())
        .then(|| format!("missing in the document: {missing:#?}, missing in the code: {unknown:#?}"))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn only_what_differs_is_named() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(difference(&set(&["a", "b"]), &set(&["b", "a"])), None);
        let told = difference(&set(&["a", "old"]), &set(&["a", "new"])).expect("they differ");
        assert_eq!(
            told,
            "missing in the document: [\n    \"new\",\n], missing in the code: [\n    \"old\",\n]"
        );
    }
}
