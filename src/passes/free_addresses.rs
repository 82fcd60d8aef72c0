//! Addresses that nothing uses, on the network as it is now.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use anyhow::Result;
use ipnetwork::Ipv6Network;
use tracing::info;

use super::run::Run;
use crate::PROGRESS;
use crate::cluster::{Mac, beside};
use crate::local::network_probe;
use crate::plan::address_ranges;
use crate::state::parameters::Parameters;

/// Number of addresses probed at once, which takes as long as probing one. Each probe uses four sockets.
const AT_ONCE: usize = 32;

/// The addresses at which a machine answers, with its MAC if known.
pub(super) type Answering = BTreeMap<IpAddr, Option<Mac>>;

/// Free addresses without those at which a machine answers, e.g. one with a static address.
pub(super) struct Silent<I, P> {
    free: I,
    answering: P,
    probed: VecDeque<IpAddr>,
}

impl<I: Iterator<Item = IpAddr>, P: AsyncFnMut(&[IpAddr]) -> Answering> Silent<I, P> {
    fn of(free: I, answering: P) -> Self {
        Self {
            free,
            answering,
            probed: VecDeque::new(),
        }
    }

    pub async fn next(&mut self) -> Option<IpAddr> {
        while self.probed.is_empty() {
            let some: Vec<IpAddr> = self.free.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return None;
            }
            let used = (self.answering)(&some).await;
            for (ip, mac) in &used {
                let who = mac.map(|mac| format!(" with MAC {mac}")).unwrap_or_default();
                info!(target: PROGRESS, step = "addresses", "{ip} is not chosen: a machine{who} answers there");
            }
            self.probed.extend(some.into_iter().filter(|ip| !used.contains_key(ip)));
        }
        self.probed.pop_front()
    }
}

impl Run<'_> {
    /// The given addresses at which nothing answers; all of them if this computer cannot reach the network.
    pub(super) fn silent<I: Iterator<Item = IpAddr>>(
        &self,
        free: I,
    ) -> Silent<I, impl AsyncFnMut(&[IpAddr]) -> Answering + use<I>> {
        let probes = self.backend.common_capabilities().guests_reachable;
        let second = self.config.ipv6.as_ref().map(|ipv6| ipv6.machine_network);
        Silent::of(free, async move |ips: &[IpAddr]| match probes {
            true => answering(ips, second).await,
            false => Answering::new(),
        })
    }

    /// Free addresses of `address_ranges`: some more than `wanted`, because another cluster may choose at the same time, or as
    /// many as it has.
    pub(super) async fn free_in_ranges(&self, wanted: usize, table: Option<&Parameters>) -> Result<Vec<IpAddr>> {
        let mut free = Vec::new();
        if wanted == 0 || self.config.address_ranges.is_empty() {
            return Ok(free);
        }
        info!(target: PROGRESS, step = "addresses", "choosing addresses of address_ranges");
        let neighbours = self.neighbours()?;
        let usable = address_ranges::usable(self.config, self.facts, &neighbours.addresses, table);
        let mut silent = self.silent(usable.into_iter());
        while free.len() < wanted + AT_ONCE
            && let Some(ip) = silent.next().await
        {
            free.push(ip);
        }
        Ok(free)
    }
}

/// The addresses at which a machine answers, or at the address derived from them in the second family.
async fn answering(ips: &[IpAddr], second: Option<Ipv6Network>) -> Answering {
    let in_second = async {
        let Some(network) = second else { return Vec::new() };
        let all: Vec<_> = ips.iter().map(|ip| beside(network, *ip)).collect();
        let used = network_probe::answering_ipv6(network, &all).await;
        let used = ips.iter().filter(|ip| used.contains(&beside(network, **ip)));
        used.map(|ip| (*ip, None)).collect()
    };
    let (mut first, second) = tokio::join!(network_probe::answering(ips), in_second);
    for (ip, mac) in second {
        first.entry(ip).or_insert(mac);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn ips<const N: usize>(last: [u8; N]) -> Vec<IpAddr> {
        last.map(ip).into()
    }

    /// The chosen addresses, and how often the network was probed.
    async fn chosen(free: std::ops::RangeInclusive<u8>, used: &[u8], count: usize) -> (Vec<IpAddr>, usize) {
        let used: Answering = used.iter().map(|last| (ip(*last), None)).collect();
        let mut probes = 0;
        let mut silent = Silent::of(free.map(ip), async |ips: &[IpAddr]| {
            probes += 1;
            ips.iter().filter_map(|ip| Some((*ip, *used.get(ip)?))).collect()
        });
        let mut chosen = Vec::new();
        for _ in 0..count {
            chosen.extend(silent.next().await);
        }
        drop(silent);
        (chosen, probes)
    }

    /// In ::/96, the address derived from 0.0.0.1 is ::1, which is this computer.
    #[tokio::test]
    async fn an_address_is_in_use_in_either_family() {
        let ips = [1, 2].map(|last| IpAddr::from([0, 0, 0, last]));
        assert_eq!(answering(&ips, None).await, Answering::new());
        let network = "::/96".parse().unwrap();
        assert_eq!(answering(&ips, Some(network)).await, Answering::from([(ips[0], None)]));
    }

    #[tokio::test]
    async fn an_address_at_which_a_machine_answers_is_not_chosen() {
        assert_eq!(chosen(2..=9, &[], 2).await, (ips([2, 3]), 1));
        assert_eq!(chosen(2..=9, &[2, 4], 2).await, (ips([3, 5]), 1));
        assert_eq!(chosen(2..=4, &[2, 3], 2).await, (ips([4]), 1), "no more are left");
        let first: Vec<u8> = (2..34).collect();
        assert_eq!(chosen(2..=60, &first, 2).await, (ips([34, 35]), 2), "more are probed");
    }
}
