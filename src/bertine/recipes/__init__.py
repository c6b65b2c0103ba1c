"""Hold the configurations of ``bertine pretrain`` by name: those of papers, and a quick one."""
