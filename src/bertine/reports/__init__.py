"""The HTML report of a run: plots, tables and examples in one file that needs nothing else."""
