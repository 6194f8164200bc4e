"""What is trained: the form of a task, the built-in ones, and models they share."""
