"""The commands and code in README and docs, checked and run; `before/` has what a page's code takes for granted."""
