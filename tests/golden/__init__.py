"""Golden records: what BERT computed before the package was restructured, and computes since.

Nothing here imports what lies within the package: only ``bertine``'s public names, its command
line, and the formats of its files. So the same records judge any tree (CONTRIBUTING.md).
"""
