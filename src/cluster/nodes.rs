//! The nodes of a configuration.

use std::net::IpAddr;

use super::names::{Mac, NodeName, Role};
use super::platform::{BackendConfig, backend_of, place_of};
use super::pools::Pool;
use super::size::{Size, Sizes};
use super::{ClusterConfig, NetworkConfig};

/// A node, with all settings for its machine.
#[derive(Clone, Debug)]
pub struct NodeSpec<'c> {
    pub name: NodeName,
    pub role: Role,
    /// The role that stands for the platform of its machine; see `place_of`.
    pub place: Role,
    /// In pass two.
    pub size: &'c Size,
    /// The name of the machine network on its platform.
    pub network: &'c str,
    /// The networks of its additional NICs.
    pub extra_networks: &'c [String],
    /// If the env file sets them.
    pub mac: Option<Mac>,
    pub ip: Option<IpAddr>,
}

impl ClusterConfig {
    /// All nodes in display order: bootstrap, masters, arbiter, workers, pools.
    pub fn nodes(&self) -> Vec<NodeSpec<'_>> {
        let of_role = |role, count| (0..count).map(move |index| NodeName::node(role, index));
        let pools = self.pools.iter();
        let of_pools = pools.flat_map(|pool| (0..pool.nodes).map(move |index| NodeName::of_pool(&pool.name, index)));
        std::iter::once(NodeName::bootstrap())
            .chain(of_role(Role::Master, self.masters))
            .chain(of_role(Role::Arbiter, usize::from(self.arbiter)))
            .chain(of_role(Role::Worker, self.workers))
            .chain(of_pools)
            .map(|name| self.node(name))
            .collect()
    }

    /// The node of this name, which the cluster may lack.
    pub fn node(&self, name: NodeName) -> NodeSpec<'_> {
        let role = name.role();
        let pool = self.pool_of(&name);
        let given = &self.given;
        let (size, macs, ips): (_, &[Mac], &[IpAddr]) = match (pool, role) {
            (Some(pool), _) => (&pool.size, &pool.macs, &pool.ips),
            (None, Role::Bootstrap) => (
                &self.bootstrap_size,
                given.bootstrap_mac.as_slice(),
                given.bootstrap_ip.as_slice(),
            ),
            (None, Role::Master) => (&self.master_size, &given.master_macs, &given.master_ips),
            (None, Role::Arbiter) => (
                &self.arbiter_size,
                given.arbiter_mac.as_slice(),
                given.arbiter_ip.as_slice(),
            ),
            (None, Role::Worker | Role::Helper) => (&self.worker_size, &given.worker_macs, &given.worker_ips),
        };
        let place = self.place_of(&name);
        let network = match (&self.workers_on, place) {
            (Some(workers), Role::Worker) => &workers.network,
            _ => &self.network,
        };
        let number = match role {
            Role::Bootstrap => Some(0),
            _ => name.number(),
        };
        NodeSpec {
            name,
            role,
            place,
            size,
            network,
            extra_networks: pool.map_or(&self.extra_networks, |pool| &pool.extra_networks),
            mac: number.and_then(|number| macs.get(number)).copied(),
            ip: number.and_then(|number| ips.get(number)).copied(),
        }
    }

    /// The roles of the members of etcd.
    pub fn etcd_roles(&self) -> &'static [Role] {
        match self.arbiter {
            true => &[Role::Master, Role::Arbiter],
            false => &[Role::Master],
        }
    }

    /// The roles of all nodes but the bootstrap. They always include `worker`, because workers may be added later.
    pub fn node_roles(&self) -> impl Iterator<Item = Role> + use<> {
        self.etcd_roles().iter().copied().chain([Role::Worker])
    }

    /// The number of workers, including those of the pools.
    pub fn all_workers(&self) -> usize {
        self.workers + self.pools.iter().map(|pool| pool.nodes).sum::<usize>()
    }

    /// The pool of a node; `None` if it is in none.
    fn pool_of(&self, node: &NodeName) -> Option<&Pool> {
        let name = node.pool()?;
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The same settings, with the numbers of workers, in and outside of pools, that these nodes have.
    pub fn with_workers_of<'a>(&self, nodes: impl Iterator<Item = &'a NodeName>) -> Self {
        let mut config = self.clone();
        config.workers = 0;
        config.pools.iter_mut().for_each(|pool| pool.nodes = 0);
        for node in nodes.filter(|node| node.role() == Role::Worker) {
            match node.pool() {
                None => config.workers += 1,
                Some(name) => {
                    let pool = config.pools.iter_mut().find(|pool| pool.name == name);
                    pool.into_iter().for_each(|pool| pool.nodes += 1);
                }
            }
        }
        config
    }

    /// The role that stands for the platform of a node's machine; see `place_of`.
    pub fn place_of(&self, node: &NodeName) -> Role {
        place_of(node.role(), node.pool(), self.workers_on.as_ref())
    }

    /// Whether the workers' own platform has any machine.
    pub fn has_workers_elsewhere(&self) -> bool {
        self.nodes().iter().any(|node| node.place == Role::Worker)
    }

    /// The backend of the machines at a place.
    pub fn backend_at(&self, place: Role) -> &BackendConfig {
        backend_of(place, &self.backend, self.workers_on.as_ref())
    }

    /// The backend of a node's machine.
    pub fn backend_of(&self, node: &NodeName) -> &BackendConfig {
        self.backend_at(self.place_of(node))
    }

    /// Roles whose nodes may run routers: workers; masters if there are none; both if user pods may run on both.
    pub fn router_roles(&self) -> Vec<Role> {
        let masters = (self.all_workers() == 0 || self.masters_schedulable).then_some(Role::Master);
        let workers = (self.all_workers() > 0).then_some(Role::Worker);
        masters.into_iter().chain(workers).collect()
    }

    /// Whether routers can run on a node: it is in no pool, or its pool has no taint that prevents them.
    pub fn admits_routers(&self, node: &NodeName) -> bool {
        !self.pool_of(node).is_some_and(Pool::repels_pods)
    }

    /// The number of workers that may run routers.
    pub fn router_workers(&self) -> usize {
        let admitting = self.pools.iter().filter(|pool| !pool.repels_pods());
        self.workers + admitting.map(|pool| pool.nodes).sum::<usize>()
    }

    /// The file with a node's connections.
    pub fn network_config_of(&self, node: &NodeName) -> Option<&NetworkConfig> {
        let selected = self.network_config.iter().filter(|file| file.nodes.selects(node));
        selected.max_by_key(|file| &file.nodes)
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            bootstrap: self.bootstrap_size.clone(),
            master: self.master_size.clone(),
            arbiter: self.arbiter.then(|| self.arbiter_size.clone()),
            worker: self.worker_size.clone(),
            pools: self
                .pools
                .iter()
                .map(|pool| (pool.name.clone(), pool.size.clone()))
                .collect(),
        }
    }
}
