"""Trainings in virtual time: the real slices, policies and membership, and no process. `training` begins one."""
