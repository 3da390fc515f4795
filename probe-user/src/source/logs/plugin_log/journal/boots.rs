//! Reads the boots of a journal file: the values of the field for the boot's id, which the file indexes.
//!
//! A hash table leads to the fields, a field to its values (data objects in a chain), and a value to the
//! first entry that has it.

use super::{
    data, entry,
    file::Journal,
    object::{Object, long},
};
use crate::source::host::ReadError;

const FIELD: u8 = 2;
const FIELD_TABLE: u8 = 5;
const NAME: &[u8] = b"_BOOT_ID";
/// The size of an object's header, and the offset of a field's name.
const HEAD: u64 = 16;
const FIELD_HEAD: usize = 40;
/// The most bytes of the table that are read. journald's table has 16 KiB.
const MAX_TABLE_BYTES: usize = 1 << 20;
/// The most fields and boots that are read.
const MAX_FIELDS: usize = 1 << 12;
const MAX_BOOTS: usize = 1 << 12;

impl Journal {
    /// Returns each boot's id in hex digits, and the time of its first entry.
    pub(super) fn boots(&self) -> Result<Vec<(String, u64)>, ReadError> {
        let mut found = Vec::new();
        let mut at = self.boot_field()?.map_or(0, |field| long(&field.bytes, 32).unwrap_or_default());
        while at != 0 && found.len() < MAX_BOOTS {
            let value = self.small(at)?;
            at = long(&value.bytes, 32).ok_or(ReadError::Malformed)?;
            let first = long(&value.bytes, 40).ok_or(ReadError::Malformed)?;
            let id = data::boot_id(&value, self.is_compact)?;
            // A value without entries has zero here.
            if first != 0 {
                found.push((id, entry::time(&self.small(first)?)?));
            }
        }
        Ok(found)
    }

    fn boot_field(&self) -> Result<Option<Object>, ReadError> {
        // The header points to the items of the table, which follow the table's own header.
        let Some(at) = self.fields.checked_sub(HEAD) else { return Ok(None) };
        let table = self.object(at, MAX_TABLE_BYTES)?;
        if table.kind != FIELD_TABLE {
            return Err(ReadError::Malformed);
        }
        let items = table.bytes.get(16..).ok_or(ReadError::Malformed)?;
        let mut fields_read = 0;
        for mut at in entry::offsets(items, 16) {
            while at != 0 && fields_read < MAX_FIELDS {
                fields_read += 1;
                let field = self.small(at)?;
                if field.kind != FIELD {
                    return Err(ReadError::Malformed);
                }
                if field.bytes.get(FIELD_HEAD..) == Some(NAME) {
                    return Ok(Some(field));
                }
                at = long(&field.bytes, 24).ok_or(ReadError::Malformed)?;
            }
        }
        Ok(None)
    }

    /// Reads a small object. The first entry of a boot has few fields too.
    fn small(&self, at: u64) -> Result<Object, ReadError> {
        self.object(at, 64 << 10)
    }
}
