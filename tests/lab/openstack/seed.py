"""Creates the initial content of the lab's cloud: catalog, projects, users, flavors, networks. Every command can be repeated.

seed.py catalog PASSWORD SERVICES  users of the services, and their endpoints; SERVICES is base or all
seed.py world PASSWORD CLOUDS SERVICES  projects, flavors and networks; CLOUDS gets their clouds.yaml
seed.py wait PASSWORD COMPUTES AGENTS
seed.py gateway PASSWORD           prints the router's address on the provider's network
seed.py port PASSWORD HOST NETWORK IP..  a port of this computer on a network of demo's; prints its id and MAC
"""

import os
import sys
import time
from itertools import product

import openstack
from openstack.exceptions import ConflictException, SDKException

AUTH_URL = "http://127.0.0.1:5000/v3"
ENDPOINTS = {
    "image": ("glance", ":9292"),
    "placement": ("placement", ":8778"),
    "compute": ("nova", ":8774/v2.1"),
    "network": ("neutron", ":9696"),
}
MORE_ENDPOINTS = {
    "volumev3": ("cinder", ":8776/v3/%(project_id)s"),
    "object-store": ("swift", ":8090/v1/AUTH_%(project_id)s"),
    "load-balancer": ("octavia", ":9876"),
}
# Guests reach public endpoints through their router; they need only Glance and Swift.
FOR_GUESTS = "http://203.0.113.1"
HOSTS = {"public": {"image": FOR_GUESTS, "object-store": FOR_GUESTS}, "internal": {}, "admin": {}}
# A region with the same services, but a Nova that retains deleted servers.
KEEPS, KEEPS_COMPUTE = "KeepsDeleted", ":8784/v2.1"
# Name, vCPUs, memory in MiB, disk in GiB. The first one fits a rehearsal guest.
FLAVORS = [("nano", 1, 192, 1), ("tiny", 1, 256, 1), ("small", 1, 512, 2), ("medium", 2, 1024, 10), ("large", 4, 16384, 100)]
# User and project have the same name, with role member only; `demo` owns the network `private`, `other` sees the shared one.
MEMBERS = ["demo", "other"]
# Additional roles of the user of project demo.
MORE_ROLES = ["swiftoperator", "load-balancer_member"]

what, password = sys.argv[1:3]


def connect(user, project):
    auth = {
        "auth_url": AUTH_URL,
        "username": user,
        "password": password,
        "project_name": project,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    return openstack.connect(auth=auth, region_name="RegionOne")


admin = connect("admin", "admin")
identity = admin.identity


def user_of(name, project, *roles):
    project = identity.find_project(project) or identity.create_project(name=project, domain_id="default")
    user = identity.find_user(name) or identity.create_user(name=name, password=password, domain_id="default")
    for role in roles:
        role = identity.find_role(role) or identity.create_role(name=role)
        identity.assign_project_role_to_user(project, user, role)


def catalog(services):
    regions = ["RegionOne", KEEPS] if services == "all" else ["RegionOne"]
    for region in regions:
        identity.find_region(region) or identity.create_region(id=region)
    for kind, (name, port) in (ENDPOINTS | MORE_ENDPOINTS if services == "all" else ENDPOINTS).items():
        user_of(name, "service", "admin", "service")
        service = next(identity.services(type=kind), None) or identity.create_service(name=name, type=kind)
        there = {(endpoint.region_id, endpoint.interface) for endpoint in identity.endpoints(service_id=service.id)}
        for region, interface in set(product(regions, HOSTS)) - there:
            path = KEEPS_COMPUTE if (region, kind) == (KEEPS, "compute") else port
            url = HOSTS[interface].get(kind, "http://127.0.0.1") + path
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id=region)


def networks():
    """`public`: a provider network, external and shared; `private` and `dual`: in project demo, behind a router; `quiet`: in demo."""
    all_ = admin.network
    public = all_.find_network("public") or all_.create_network(
        name="public",
        provider_network_type="flat",
        provider_physical_network="provider",
        is_router_external=True,
        is_shared=True,
    )
    all_.find_subnet("public") or all_.create_subnet(
        name="public",
        network_id=public.id,
        ip_version=4,
        cidr="203.0.113.0/24",
        gateway_ip="203.0.113.1",
        allocation_pools=[{"start": "203.0.113.100", "end": "203.0.113.250"}],
    )
    mine = connect("demo", "demo").network
    private = mine.find_network("private") or mine.create_network(name="private")
    # Space for hundreds of fake servers; the upper part is for addresses that tests request explicitly.
    subnet = mine.find_subnet("private") or mine.create_subnet(
        name="private",
        network_id=private.id,
        ip_version=4,
        cidr="10.20.0.0/16",
        gateway_ip="10.20.0.1",
        allocation_pools=[{"start": "10.20.1.0", "end": "10.20.15.255"}],
    )
    # For hundreds of fake servers: no agent has work for ports of this network.
    quiet = mine.find_network("quiet") or mine.create_network(name="quiet", port_security_enabled=False)
    mine.find_subnet("quiet") or mine.create_subnet(
        name="quiet", network_id=quiet.id, ip_version=4, cidr="10.21.0.0/16", enable_dhcp=False
    )
    # Both address families. There is no IPv6 router, because router advertisements need radvd.
    dual = mine.find_network("dual") or mine.create_network(name="dual")
    dual_subnet = mine.find_subnet("dual") or mine.create_subnet(
        name="dual", network_id=dual.id, ip_version=4, cidr="10.22.0.0/24", gateway_ip="10.22.0.1"
    )
    mine.find_subnet("dual-ipv6") or mine.create_subnet(
        name="dual-ipv6",
        network_id=dual.id,
        ip_version=6,
        cidr="fd00:22::/64",
        gateway_ip="fd00:22::1",
        ipv6_address_mode="dhcpv6-stateful",
    )
    if not mine.find_router("router"):
        router = mine.create_router(name="router", external_gateway_info={"network_id": public.id})
        mine.add_interface_to_router(router, subnet_id=subnet.id)
        mine.add_interface_to_router(router, subnet_id=dual_subnet.id)


def world(clouds, services):
    for name in MEMBERS:
        user_of(name, name, "member")
    if services == "all":
        user_of("demo", "demo", *MORE_ROLES)
        # Volumes of this type are in zone `far`.
        storage = admin.block_storage
        storage.find_type("far") or storage.create_type(name="far", extra_specs={"volume_backend_name": "far"})
    user_of("admin", "demo", "admin")
    for name, vcpus, ram, disk in FLAVORS:
        admin.compute.find_flavor(name) or admin.compute.create_flavor(name=name, vcpus=vcpus, ram=ram, disk=disk)
    networks()
    with open(os.open(clouds, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        print("clouds:", file=file)
        entries = [(name, name, name, "RegionOne") for name in MEMBERS] + [("admin", "admin", "demo", "RegionOne")]
        entries += [("keeps", "demo", "demo", KEEPS)] if services == "all" else []
        for entry, user, project, region in entries:
            print(
                f"  {entry}:\n    region_name: {region}\n    identity_api_version: 3\n    auth:\n"
                f"      auth_url: {AUTH_URL}\n      username: {user}\n      password: {password}\n"
                f"      project_name: {project}\n      user_domain_id: default\n      project_domain_id: default",
                file=file,
            )


def wait(computes, agents):
    """Waits until all are alive, then puts each kind of compute node into its own zone."""
    seen, end = None, time.monotonic() + 300
    while time.monotonic() < end:
        try:
            hosts = {one.name: one for one in admin.compute.hypervisors(details=True) if one.state == "up"}
            seen = sorted(hosts), sorted(agent.binary for agent in admin.network.agents() if agent.is_alive)
            if len(seen[0]) >= computes and len(seen[1]) >= agents:
                break
        except SDKException as error:
            seen = error
        time.sleep(0.5)
    else:
        sys.exit(f"openstack lab: not all compute nodes and agents started: {seen}")
    for zone in "real", "fake":
        group = admin.compute.find_aggregate(zone) or admin.compute.create_aggregate(name=zone, availability_zone=zone)
        for host in (one.service_details["host"] for one in hosts.values()):
            if host.startswith("fake") == (zone == "fake"):
                try:
                    admin.compute.add_host_to_aggregate(group, host)
                except ConflictException:
                    pass


if what == "catalog":
    catalog(sys.argv[3])
elif what == "world":
    world(*sys.argv[3:])
elif what == "wait":
    wait(int(sys.argv[3]), int(sys.argv[4]))
elif what == "gateway":
    router = admin.network.find_router("router")
    print(router.external_gateway_info["external_fixed_ips"][0]["ip_address"])
elif what == "port":
    network = admin.network.find_network(sys.argv[4])
    port = admin.network.create_port(
        network_id=network.id,
        name="lab",
        # Owned by the cloud, like the router's ports.
        device_owner="network:lab",
        binding_host_id=sys.argv[3],
        fixed_ips=[{"ip_address": ip} for ip in sys.argv[5:]],
        port_security_enabled=False,
    )
    print(port.id, port.mac_address)
