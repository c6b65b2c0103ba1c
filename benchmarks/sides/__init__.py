"""The two sides of the table of tasks: bertine, and loops over transformers."""
