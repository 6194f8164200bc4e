"""Pushes and pulls of all servers, sent again until they are answered; what is owed."""
