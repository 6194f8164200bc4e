"""What writes pages, stubs and dashboards from the code, checks the docs, and makes a release."""
