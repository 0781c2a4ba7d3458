"""The documentation site (``make docs``): what mkdocs cannot read from docs/. Not in the wheel."""
