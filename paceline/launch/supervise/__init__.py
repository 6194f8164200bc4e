"""The processes of a run: started in order, watched, started again, ended."""
