-- Views over the files of one run, for any DuckDB client. In the run's folder: duckdb -init analysis.sql
-- From elsewhere name the folder first: SET VARIABLE run = 'outputs/latest';
CREATE OR REPLACE MACRO run_file(name) AS coalesce(getvariable('run'), '.') || '/' || name;

CREATE OR REPLACE VIEW sequences AS
FROM read_parquet(run_file('sequences/*/*.parquet'), hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE VIEW parts AS FROM read_parquet(run_file('parts.parquet'));
CREATE OR REPLACE VIEW questions AS FROM read_parquet(run_file('questions.parquet'));
CREATE OR REPLACE VIEW windows AS FROM read_parquet(run_file('windows.parquet'));
CREATE OR REPLACE VIEW evidence AS FROM read_parquet(run_file('evidence.parquet'));
CREATE OR REPLACE VIEW records AS FROM read_parquet(run_file('records.parquet'));

-- The steps that a budget takes of every question: FROM cut('coverage', 2800). The first step is always taken; the
-- others end before the first whose total passes the budget.
CREATE OR REPLACE MACRO cut(name, budget) AS TABLE
SELECT * FROM sequences WHERE sequence = name
QUALIFY position = 0 OR max(used) OVER (PARTITION BY question_id ORDER BY position) <= budget;
