"""What travels between processes: transports, who may make which call, tokens, TLS, how long to wait.

gRPC's own remarks, like a connection that a server has closed as it should, stay off the terminal; a user's
GRPC_VERBOSITY wins.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
