//! A number with the noun that it counts.

/// `1 pod`, `2 pods`, `0 pods`; `2 addresses`, `2 sandboxes`.
#[must_use]
pub fn counted(count: u64, one: &str) -> String {
    let ending = match count {
        1 => "",
        _ if one.ends_with(['s', 'x']) => "es",
        _ => "s",
    };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_is_not_many() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
        assert_eq!([1, 2].map(|count| counted(count, "address")), ["1 address", "2 addresses"]);
        assert_eq!(counted(2, "sandbox"), "2 sandboxes");
    }
}
