//! The data plane: ports, switch, workers.
