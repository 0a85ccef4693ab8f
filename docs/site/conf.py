"""Sphinx's settings for the pages that `staging.py` has laid out."""

from __future__ import annotations

from importlib import metadata

project = "Lakelatch"
release = metadata.version("lakelatch")
copyright = "the authors of Lakelatch, under the Apache License 2.0"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["extra"]

myst_heading_anchors = 6  # those that GitHub gives to headings
myst_links_external_new_tab = False
suppress_warnings = [
    "misc.highlighting_failure",  # blocks with "..." in the place of values
    "myst.header",  # a page of the changelog may begin lower
]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
default_role = "code"  # docstrings say `code` as Markdown does

html_theme = "furo"
html_title = f"Lakelatch {release}"
html_extra_path = ["extra"]  # what pages name by HTML of their own, and llms.txt
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
