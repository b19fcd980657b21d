//! A primary with secondaries, tertiaries and external resources, in one client and across two.

mod controller;
mod external;
mod secondary;
mod stress;
mod world;
