# Every recipe runs in the project's own environment, which uv makes at the first use.

uv := env("UV", "uv")  # uv tells its own path to what it runs
python := uv + " run python -m"

# List the recipes
default:
    @just --list

# Build every question's payload sequence; without arguments, the sample's
[positional-arguments]
build-sequences *arguments:
    @{{ python }} jobs.build_sequences "$@"

# Show a question's context: just render QUESTION --sequence coverage --budget 2800
[positional-arguments]
render *arguments:
    @{{ python }} jobs.render "$@"

# Cut a run's sequences at points, and draw the evidence, count, quote and budget curves
[positional-arguments]
curves *arguments:
    @{{ python }} jobs.curves "$@"

# Look at a run in DuckDB: a prompt, or just sql RUN -c "FROM budget_curve"
[positional-arguments]
sql *arguments:
    @{{ python }} jobs.sql "$@"

# Compare the curves of two runs, paired by question: just compare RUN_A RUN_B
[positional-arguments]
compare *arguments:
    @{{ python }} jobs.compare "$@"

# Turn an SQLite store into Parquet: just export-store memory.db --out FOLDER
[positional-arguments]
export-store *arguments:
    @{{ python }} jobs.export_store "$@"

# Turn LongMemEval's or LoCoMo's JSON into a store, questions and evidence
[positional-arguments]
import-dataset *arguments:
    @{{ python }} jobs.import_dataset "$@"

# Ask a running memory server every question: just record-windows QUESTIONS --server URL --out answers.jsonl
[positional-arguments]
record-windows *arguments:
    @{{ uv }} run --extra mcp python -m jobs.record_windows "$@"

# Turn a memory server's saved answers into windows
[positional-arguments]
import-windows *arguments:
    @{{ python }} jobs.import_windows "$@"

# Fill in query vectors from an embedding endpoint
[positional-arguments]
embed-questions *arguments:
    @{{ python }} jobs.embed_questions "$@"

# Divide a store's records into blocks and give them vectors
[positional-arguments]
embed-store *arguments:
    @{{ python }} jobs.embed_store "$@"

# Recompute what changed in every store: just nightly --stores 'memories/*.db' --questions FILE --out FOLDER
[positional-arguments]
nightly *arguments:
    @{{ python }} jobs.nightly "$@"

# Draw the development questions, once: just draw-dev --n 100 --questions FILE
[positional-arguments]
draw-dev *arguments:
    @{{ python }} jobs.draw_dev "$@"

# Try a grid of settings on the development questions
[positional-arguments]
sweep *arguments:
    @{{ python }} jobs.sweep "$@"

# Freeze a rule before its test questions are answered
[positional-arguments]
register *arguments:
    @{{ python }} jobs.register "$@"

# Write the contexts of a point for an answering model
[positional-arguments]
export-contexts *arguments:
    @{{ python }} jobs.export_contexts "$@"

# Take graded answers
[positional-arguments]
import-answers *arguments:
    @{{ python }} jobs.import_answers "$@"

# Apply a registered rule to the answers
[positional-arguments]
judge *arguments:
    @{{ python }} jobs.judge "$@"

# Run the tests, a process a core
[positional-arguments]
test *arguments:
    {{ uv }} run --group server python -m pytest -n logical --maxprocesses 4 "$@"

# Kill the nightly fifty times, fill its disk, change its stores under it: some minutes
[positional-arguments]
test-faults *arguments:
    FAULTS=50 {{ uv }} run --group server python -m pytest -m "slow or not slow" tests/test_faults.py "$@"

# Format, lint, check types, run the tests
check: && test
    {{ uv }} run ruff format .
    {{ uv }} run ruff check .
    {{ uv }} run mypy

# Time the job and its steps on generated and, where present, LoCoMo work; not a test
[positional-arguments]
bench *arguments:
    @{{ python }} jobs.bench "$@"

# Write the committed sample again
[positional-arguments]
make-sample *arguments:
    @{{ python }} jobs.make_sample "$@"
