# Every recipe runs in the project's own environment, which uv makes at the first use.

python := "uv run python -m"

# List the recipes
default:
    @just --list

# Build every question's payload sequence; without arguments, the sample's
[positional-arguments]
build-sequences *arguments:
    {{ python }} jobs.build_sequences "$@"

# Run the tests
[positional-arguments]
test *arguments:
    {{ python }} pytest "$@"

# Format, lint, check types, run the tests
check: && test
    uv run ruff format .
    uv run ruff check .
    uv run mypy

# Time the job and its steps on generated and, where present, LoCoMo work; not a test
[positional-arguments]
bench *arguments:
    {{ python }} jobs.bench "$@"

# Write the committed sample again
[positional-arguments]
make-sample *arguments:
    {{ python }} jobs.make_sample "$@"
