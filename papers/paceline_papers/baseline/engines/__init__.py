"""What trains a baseline, one engine a file."""
