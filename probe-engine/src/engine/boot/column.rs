//! The columns of the table of boots.

/// Kubelet start, first static pod, first service pod, last service pod.
pub const COLUMNS: usize = 4;

/// Nanoseconds from the zero; none where a column is not known.
pub(super) type Row = [Option<i64>; COLUMNS];

/// Each column less the one before; the first as it is.
pub(super) fn differences(columns: &Row) -> Row {
    std::array::from_fn(|n| match n.checked_sub(1).and_then(|before| columns.get(before)) {
        None => columns[0],
        Some(before) => Some(columns.get(n).copied().flatten()? - (*before)?),
    })
}
