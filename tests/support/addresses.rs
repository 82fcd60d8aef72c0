//! Addresses of clusters whose networks have IPv4.

use std::net::{IpAddr, Ipv4Addr};

#[track_caller]
pub fn ipv4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip}"),
    }
}
