"""The lane: gRPC on plain sockets, for the data between workers and servers."""
