"""Runs on Kubernetes, by the user's own kubectl: deploy, watch, explain, fetch, tear down."""
