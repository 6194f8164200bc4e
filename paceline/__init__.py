"""Paceline: training on a parameter server that you can loosen or tighten."""
