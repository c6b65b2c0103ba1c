"""Build HTML pages: plots, tables and examples in one file that needs nothing else."""
