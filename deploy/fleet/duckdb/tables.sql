-- The tables of an export for DuckDB, which is to run in the export's folder (docs/fleet.md).

CREATE OR REPLACE VIEW events AS
SELECT * EXCLUDE (filename)
FROM read_parquet('events/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true);

CREATE OR REPLACE VIEW starts AS
SELECT * EXCLUDE (filename)
FROM read_parquet('starts/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id, sandbox ORDER BY ended_at DESC, filename DESC) = 1;

CREATE OR REPLACE VIEW findings AS
SELECT * EXCLUDE (filename)
FROM read_parquet('findings/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id, key ORDER BY changed_at DESC, filename DESC) = 1;

CREATE OR REPLACE VIEW boots AS
SELECT * EXCLUDE (filename)
FROM read_parquet('boots/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id ORDER BY seen_at DESC, filename DESC) = 1;

CREATE OR REPLACE VIEW restarts AS
SELECT * EXCLUDE (filename)
FROM read_parquet('restarts/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id, program, ran_since_ns ORDER BY seen_at DESC, filename DESC) = 1;
