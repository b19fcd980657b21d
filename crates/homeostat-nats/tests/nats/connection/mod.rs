//! Connections.

mod basics;
mod lies;
mod login;
mod reconnect;
mod stop;
mod tls;
mod writes;
