//! The whole system as its users run it: real processes with configuration and certificates made by the command, real sockets on
//! loopback, `kill -9`, cut networks, full disks and bad input. Everything acknowledged is accounted for.

mod bad_input;
mod centres;
mod cluster;
mod crashes;
mod disk;
mod http;
mod load;
mod process;
mod relay;
mod wrong_peers;
