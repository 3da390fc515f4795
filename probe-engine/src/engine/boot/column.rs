//! The columns of the table of boots.

/// Kubelet start, first static pod, first service pod, last service pod.
pub const COLUMNS: usize = 4;

/// Nanoseconds from the zero; `None` where a column is not known.
pub(super) type Row = [Option<i64>; COLUMNS];

/// Returns each column less the one before, and the first column unchanged.
pub(super) fn differences(columns: &Row) -> Row {
    std::array::from_fn(|n| match n.checked_sub(1).and_then(|before| columns.get(before)) {
        None => columns[0],
        Some(before) => Some(columns.get(n).copied().flatten()? - (*before)?),
    })
}
