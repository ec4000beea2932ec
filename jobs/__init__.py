"""The commands: parse arguments, read, call the chain, write."""

import os

# NOTE: before numpy is loaded. Its products are small here, and idle BLAS threads spin: a third of LoCoMo's CPU.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
