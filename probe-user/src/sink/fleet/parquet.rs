//! Writes rows of one table as a file of Apache Parquet.

use std::{fmt::Write as _, mem, sync::Arc};

use parquet::{
    basic::{Compression, Encoding},
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use super::{
    Table,
    cell::{Cell, Kind},
    column::Column,
};

/// Rows of a row group. At most this many rows of each file wait in memory.
const GROUP: usize = 1 << 13;
const MADE_BY: &str = concat!("sandprobe ", env!("CARGO_PKG_VERSION"));

/// The rows cannot be written, because of a bug in this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot make Parquet of {table}: {why}")]
pub(crate) struct Unwritable {
    table: &'static str,
    why: ParquetError,
}

/// A file that is being made.
pub(super) struct Writer {
    table: &'static Table,
    file: SerializedFileWriter<Vec<u8>>,
    /// The values of the rows of the next group, by column.
    waiting: Vec<Vec<Cell>>,
    rows: u64,
}

impl Writer {
    pub(super) fn new(table: &'static Table) -> Result<Self, Unwritable> {
        let made = parse_message_type(&schema(table))
            .and_then(|schema| SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties(table)));
        let file = made.map_err(|why| Unwritable { table: table.name, why })?;
        Ok(Self { table, file, waiting: table.columns().map(|_| Vec::new()).collect(), rows: 0 })
    }

    /// Adds a row, whose cells are in the order of the columns.
    pub(super) fn push(&mut self, row: Vec<Cell>) -> Result<(), Unwritable> {
        for (column, cell) in self.waiting.iter_mut().zip(row) {
            column.push(cell);
        }
        self.rows += 1;
        if self.waiting.first().is_some_and(|column| column.len() >= GROUP) { self.flush() } else { Ok(()) }
    }

    /// The bytes of the file, and its number of rows.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, u64), Unwritable> {
        if self.waiting.first().is_some_and(|column| !column.is_empty()) {
            self.flush()?;
        }
        let table = self.table.name;
        let rows = self.rows;
        let bytes = self.file.into_inner().map_err(|why| Unwritable { table, why })?;
        Ok((bytes, rows))
    }

    fn flush(&mut self) -> Result<(), Unwritable> {
        let Self { table, file, waiting, .. } = self;
        write_group(file, table, waiting).map_err(|why| Unwritable { table: table.name, why })
    }
}

fn write_group(
    file: &mut SerializedFileWriter<Vec<u8>>,
    table: &Table,
    waiting: &mut [Vec<Cell>],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for (column, cells) in table.columns().zip(waiting) {
        write(&mut group, column, mem::take(cells))?;
    }
    group.close().map(drop)
}

/// The schema in the language of Parquet.
fn schema(table: &Table) -> String {
    let mut text = format!("message {} {{\n", table.name);
    for Column { name, kind, is_required, .. } in table.columns() {
        let repetition = if *is_required { "REQUIRED" } else { "OPTIONAL" };
        let column = match kind {
            Kind::Name | Kind::Text => format!("BYTE_ARRAY {name} (STRING);"),
            Kind::Integer => format!("INT64 {name};"),
            Kind::Flag => format!("BOOLEAN {name};"),
            Kind::Time => format!("INT64 {name} (TIMESTAMP(NANOS,true));"),
            Kind::Map => format!(
                "GROUP {name} (MAP) {{ REPEATED GROUP key_value {{ REQUIRED BYTE_ARRAY key (STRING); \
                 REQUIRED BYTE_ARRAY value (STRING); }} }}"
            ),
        };
        // Writing to a string does not fail.
        writeln!(text, "  {repetition} {column}").ok();
    }
    text + "}\n"
}

fn properties(table: &Table) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_created_by(MADE_BY.to_owned())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in table.columns() {
        // Times and counters grow from row to row: their differences are short.
        if column.kind == Kind::Time || (column.kind == Kind::Integer && column.is_required) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Arc::new(properties.build())
}

/// The values, and for each row whether it has one.
struct Levels<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

impl<T> Levels<T> {
    fn of(cells: Vec<Cell>, value: impl Fn(Cell) -> Option<T>) -> Self {
        let mut values = Vec::new();
        let mut present = Vec::with_capacity(cells.len());
        for cell in cells {
            let value = value(cell);
            present.push(i16::from(value.is_some()));
            values.extend(value);
        }
        Self { values, present }
    }

    /// A required column has no levels.
    fn levels(&self, column: &Column) -> Option<&[i16]> {
        (!column.is_required).then_some(&self.present[..])
    }
}

fn write(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &Column,
    cells: Vec<Cell>,
) -> Result<(), ParquetError> {
    if column.kind == Kind::Map {
        return write_map(group, cells);
    }
    let mut writer = group.next_column()?.ok_or_else(too_few)?;
    match column.kind {
        Kind::Name | Kind::Text => {
            let it = Levels::of(cells, |cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(text.into_bytes())),
                Cell::Null | Cell::Integer(_) | Cell::Flag(_) | Cell::Map(_) => None,
            });
            writer.typed::<ByteArrayType>().write_batch(&it.values, it.levels(column), None)?;
        }
        Kind::Integer | Kind::Time => {
            let it = Levels::of(cells, |cell| match cell {
                Cell::Integer(number) => Some(number),
                Cell::Null | Cell::Text(_) | Cell::Flag(_) | Cell::Map(_) => None,
            });
            writer.typed::<Int64Type>().write_batch(&it.values, it.levels(column), None)?;
        }
        Kind::Flag | Kind::Map => {
            let it = Levels::of(cells, |cell| Some(cell == Cell::Flag(true)));
            writer.typed::<BoolType>().write_batch(&it.values, it.levels(column), None)?;
        }
    }
    writer.close()
}

/// Writes a map as two columns with the same levels. A map without entries has one level that says so.
fn write_map(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: Vec<Cell>,
) -> Result<(), ParquetError> {
    let mut keys = Vec::new();
    let mut values = Vec::new();
    let mut present = Vec::new();
    let mut repeated = Vec::new();
    for cell in cells {
        let Cell::Map(entries) = cell else {
            present.push(0);
            repeated.push(0);
            continue;
        };
        if entries.is_empty() {
            present.push(0);
            repeated.push(0);
        }
        for (number, (key, value)) in entries.iter().enumerate() {
            present.push(1);
            repeated.push(i16::from(number > 0));
            keys.push(ByteArray::from(key.as_str()));
            values.push(ByteArray::from(value.as_str()));
        }
    }
    for texts in [keys, values] {
        let mut writer = group.next_column()?.ok_or_else(too_few)?;
        writer.typed::<ByteArrayType>().write_batch(&texts, Some(&present), Some(&repeated))?;
        writer.close()?;
    }
    Ok(())
}

fn too_few() -> ParquetError {
    ParquetError::General("the schema has too few columns".to_owned())
}
