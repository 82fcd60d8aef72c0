//! Requests to the services and their responses as values. Pure.

mod balancers;
mod common;
mod flavors;
mod servers;
#[cfg(test)]
mod tests;

pub(super) use self::balancers::*;
pub(super) use self::common::*;
pub(super) use self::flavors::*;
pub(super) use self::servers::*;
