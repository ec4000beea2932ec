"""The commands: parse arguments, read, call the chain, write."""
