"""Settings of the site's pages (Sphinx with MyST and furo). sim_scripts/site makes the folder that Sphinx reads, and
runs it with warnings as errors. No setting names a server: the pages load nothing from the network."""

import os
import sys

sys.path.insert(0, os.environ["TPUBOARD_SITE_PYTHON"])

project = "tpuboard"
version = release = os.environ["TPUBOARD_SITE_VERSION"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["_*"]

# Anchors of headings are those of a forge, which the pages' links name.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Pages quote programs with elisions, which a lexer cannot read.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "none"
default_role = "literal"  # of docstrings

# The package imports frameworks and NumPy, which the pages do not need.
autodoc_mock_imports = ["jax", "jaxlib", "ml_dtypes", "numpy", "tensorflow", "torch", "torch_xla"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"tpuboard {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ |\(gdb\) "
copybutton_prompt_is_regexp = True
