//! A number with the thing that it counts.

/// `1 pod`, `2 pods`, `0 pods`.
#[must_use]
pub(crate) fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_is_not_many() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }
}
