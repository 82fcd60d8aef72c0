//! The API server of a cluster during its installation: strict, stateful, and hostile on request.
//!
//! It has the kinds that the program uses, and a request for another kind fails the test.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod authority;
pub mod requests;
pub mod server;
pub mod world;
