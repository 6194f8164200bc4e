"""Runs on several machines: who lends what, how a machine joins, ssh and Slurm."""
