-- The tables of an export for DuckDB, which is to run in the export's folder (docs/fleet.md).

CREATE OR REPLACE VIEW events AS
SELECT *
FROM read_parquet('events/*/*.parquet', hive_partitioning = true);

CREATE OR REPLACE VIEW starts AS
SELECT *
FROM read_parquet('starts/*/*.parquet', hive_partitioning = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id, sandbox ORDER BY ended_at DESC) = 1;

CREATE OR REPLACE VIEW findings AS
SELECT *
FROM read_parquet('findings/*/*.parquet', hive_partitioning = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id, key ORDER BY changed_at DESC) = 1;

CREATE OR REPLACE VIEW boots AS
SELECT *
FROM read_parquet('boots/*/*.parquet', hive_partitioning = true)
QUALIFY row_number() OVER (PARTITION BY node, boot_id ORDER BY seen_at DESC) = 1;
