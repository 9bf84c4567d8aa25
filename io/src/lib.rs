//! The loops: the only clock and sockets.
