"""What the machine code of a kernel says, found without a GPU: see docs/static.md."""
