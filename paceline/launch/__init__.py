"""Runs that are started and watched: on this machine, on several, on a cluster."""
