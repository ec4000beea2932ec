CREATE OR REPLACE VIEW points AS FROM read_parquet(run_file('points.parquet'));
CREATE OR REPLACE VIEW metrics AS FROM read_parquet(run_file('metrics.parquet'));
CREATE OR REPLACE VIEW curves AS FROM read_parquet(run_file('curves.parquet'));
