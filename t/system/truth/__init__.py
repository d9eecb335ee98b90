"""The truth test: stand-in engines, an oracle, and faults between them."""
