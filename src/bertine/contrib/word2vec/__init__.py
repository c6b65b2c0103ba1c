"""Train, read, write and query static word vectors."""
