"""The documentation site: Sphinx with furo and MyST. `make docs` builds it."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_ext"))

import bertine  # noqa: E402

project = "Bertine"
author = "The Bertine developers"
copyright = "the Bertine developers, Apache-2.0"
version = release = bertine.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "myst_parser",
    "bertine_docs",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
# The last is that of links to files of the repository: see _ext/repository_links.py.
myst_url_schemes = ["http", "https", "mailto", "repository"]

# Of a block with commands and what they print, the commands are copied.
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

# Docstrings: Google's sections, with `names` in single backticks
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

# The look
html_theme = "furo"
html_title = f"Bertine {release}"
html_static_path = ["_static"]
html_css_files = ["bertine.css"]
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f6f5c",
        "color-brand-content": "#1f6f5c",
        "color-brand-visited": "#1f6f5c",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6fd0b3",
        "color-brand-content": "#6fd0b3",
        "color-brand-visited": "#6fd0b3",
    },
}
