"""Shows what a cloud really contains, read with OpenStack's own library, and makes changes for tests without ocpdeploy.

openstack_judge.py CLOUD see [TEXT]          prints the project's objects with TEXT in name, description, tag or metadata as JSON
openstack_judge.py CLOUD server-put NAME     creates a server without an owner, on the fake compute nodes
openstack_judge.py CLOUD server-drop NAME
openstack_judge.py CLOUD server-delete NAME  deletes it as a user, without waiting for completion
openstack_judge.py admin kept                prints the names of deleted servers that Nova retains
openstack_judge.py CLOUD port-put NETWORK IP
openstack_judge.py CLOUD port-drop IP
openstack_judge.py CLOUD port-keep MAC IP    removes all other addresses from the port
openstack_judge.py CLOUD floating-put NETWORK  creates a floating IP of the user and prints its address
openstack_judge.py CLOUD floating-drop IP      deletes it; it must not be assigned to a port
openstack_judge.py CLOUD foreign-put NETWORK EXTERNAL PREFIX MARK..  creates ports, floating IPs, groups, images and servers
                     of other owners and prints their ids; MARK is another cluster's id, or =TEXT for any text
openstack_judge.py CLOUD foreign-drop ID..
openstack_judge.py CLOUD network-put NAME CIDR EXTERNAL   creates a network of the project behind a router
openstack_judge.py CLOUD network-drop NAME
openstack_judge.py CLOUD plant VICTIM MARK IMAGE  creates a group with the tag of VICTIM's cluster, shared with its project,
                     and a public image with the tag and digest of IMAGE; prints the ids
openstack_judge.py CLOUD restrict NAME RULES  creates an application credential with exactly these access rules (JSON); prints
                     its id and secret
openstack_judge.py CLOUD unrestrict NAME     deletes it, and its access rules
openstack_judge.py CLOUD has SERVICE         prints `true` if the catalog contains the service
openstack_judge.py CLOUD balancer-put NETWORK NAME TAG..   creates a load balancer of another owner and prints its id
openstack_judge.py CLOUD balancer-drop ID
openstack_judge.py CLOUD default-rules       prints the rules of the project's group `default`
openstack_judge.py admin quota KEY=NUMBER..  sets quotas of project demo; -1 is unlimited

CLOUD is an entry of the clouds.yaml that OS_CLIENT_CONFIG_FILE names.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

import openstack
from keystoneauth1.exceptions import EndpointNotFound
from openstack.exceptions import NotFoundException

cloud, what, *arguments = sys.argv[1:]
there = openstack.connect(cloud=cloud)
mine = there.current_project_id


def own(things):
    """Only the project's own objects: the library also lists shared objects of other projects."""
    return [thing for thing in things if (thing.project_id or mine) == mine]


def image(one):
    # User-defined properties are the image's metadata; the library also has fields for some of them.
    return plain(one) | {"metadata": dict(one.properties or {})}


def plain(one):
    return {key: value for key, value in one.to_dict(computed=False).items() if value is not None}


def volumes():
    try:
        return list(there.block_storage.volumes(details=True))
    except EndpointNotFound:
        return []


def objects():
    try:
        store = there.object_store
        return [one for box in store.containers() for one in [box, *store.objects(box)]]
    except EndpointNotFound:
        return []


def load_balancers():
    """Each with its listeners: port, sources and members."""
    found = []
    try:
        balancing = there.load_balancer
        all = list(balancing.load_balancers())
    except EndpointNotFound:
        return []
    for balancer in own(all):
        whole = plain(balancer) | {"listeners": []}
        for part in balancer.listeners:
            listener = balancing.get_listener(part["id"])
            if not listener.default_pool_id:
                whole["listeners"].append(plain(listener) | {"members": [], "monitor": None})
                continue
            pool = balancing.get_pool(listener.default_pool_id)
            members = [plain(member) for member in balancing.members(pool)]
            monitor = pool.health_monitor_id and plain(balancing.get_health_monitor(pool.health_monitor_id))
            whole["listeners"].append(plain(listener) | {"members": members, "monitor": monitor})
        found.append(whole)
    return found


def everything():
    network = there.network
    # Ports of the router and of DHCP belong to the cloud.
    ports = [one for one in own(network.ports()) if not (one.device_owner or "").startswith("network:")]
    groups = [one for one in own(network.security_groups()) if one.name != "default"]
    images = [one for one in there.image.images(visibility="private") if one.owner == mine]
    return {
        "servers": [plain(one) for one in there.compute.servers(details=True)],
        "server_groups": [plain(one) for one in there.compute.server_groups()],
        "ports": [plain(one) for one in ports],
        "floating_ips": [plain(one) for one in own(network.ips())],
        "security_groups": [plain(one) for one in groups],
        "images": [image(one) for one in images + public_images()],
        "volumes": [plain(one) for one in volumes()],
        "objects": [plain(one) for one in objects()],
        "load_balancers": load_balancers(),
    }


def public_images():
    return [one for kind in ("public", "shared", "community") for one in there.image.images(visibility=kind) if one.owner == mine]


def words(thing):
    """All texts that can identify the owner of an object."""
    for key in ("name", "description"):
        yield thing.get(key) or ""
    for tag in thing.get("tags") or []:
        yield tag
    for key, value in (thing.get("metadata") or {}).items():
        yield f"{key}={value}"


def see(text=""):
    seen = {
        kind: [thing for thing in things if any(text in word for word in words(thing))]
        for kind, things in everything().items()
    }
    json.dump(seen, sys.stdout, default=str)


def server_put(name):
    """The image contains no system: the fake compute nodes run none, but Nova requires an image."""
    picture = next(iter(there.image.images(name="nobodys")), None) or there.image.create_image(
        name="nobodys", data=b"nothing", disk_format="raw", container_format="bare", wait=True
    )
    flavor = min(there.compute.flavors(), key=lambda flavor: flavor.ram)
    server = there.compute.create_server(
        name=name, image_id=picture.id, flavor_id=flavor.id, networks="none", availability_zone="fake"
    )
    there.compute.wait_for_server(server)


def server_drop(name):
    for server in there.compute.servers(name=f"^{name}$"):
        there.compute.delete_server(server, force=True)
        there.compute.wait_for_delete(server)
    for picture in there.image.images(name="nobodys"):
        there.image.delete_image(picture)


def server_delete(name):
    (server,) = there.compute.servers(name=f"^{name}$")
    there.compute.delete_server(server)


def kept():
    # Only the list of deleted servers contains them, for administrators (nova/db/main/api.py: instance_get_all_by_filters).
    servers = there.compute.get("/servers/detail?all_tenants=1&deleted=true").json()["servers"]
    json.dump([server["name"] for server in servers if server["status"] == "SOFT_DELETED"], sys.stdout)


def port_put(name, ip):
    network = there.network.find_network(name)
    there.network.create_port(network_id=network.id, name="nobodys", fixed_ips=[{"ip_address": ip}])


def port_drop(ip):
    for port in there.network.ports(fixed_ips=f"ip_address={ip}"):
        try:
            there.network.delete_port(port)
        except NotFoundException:
            pass


def port_keep(mac, ip):
    (port,) = there.network.ports(mac_address=mac)
    kept = [fixed for fixed in port.fixed_ips if fixed["ip_address"] == ip]
    there.network.update_port(port, fixed_ips=kept)


def floating_put(name):
    network = there.network.find_network(name)
    floating = there.network.create_ip(floating_network_id=network.id, description="the user's own")
    print(floating.floating_ip_address, end="")


def floating_drop(ip):
    (floating,) = there.network.ips(floating_ip_address=ip)
    assert floating.port_id is None, floating
    there.network.delete_ip(floating)


def foreign_put(network, external, prefix, *marks):
    inside, outside = (there.network.find_network(name) for name in (network, external))
    flavor = min(there.compute.flavors(), key=lambda flavor: flavor.ram)
    ids, servers = [], []
    for number, mark in enumerate(marks):
        name, text, own = f"{prefix}{number}", f"ocpdeploy {mark}", mark.startswith("=")
        text = mark[1:] if own else text
        # A tag must not contain a comma or a slash.
        tags = [text] if own and text else [] if own else ["ocpdeploy", mark]
        made = [
            there.network.create_port(network_id=inside.id, name=name, description=text),
            there.network.create_ip(floating_network_id=outside.id, description=text),
            there.network.create_security_group(name=text or name, description=text),
            there.compute.create_server_group(name=f"{text or name} masters", policy="soft-anti-affinity"),
        ]
        image = there.image.create_image(
            name=name, data=b"nothing", disk_format="raw", container_format="bare", tags=tags, wait=True
        )
        server = there.compute.create_server(
            name=name,
            image_id=image.id,
            flavor_id=flavor.id,
            networks="none",
            availability_zone="fake",
            metadata={} if own else {"ocpdeploy.cluster": mark},
        )
        servers.append((server, tags))
        ids += [one.id for one in [*made, image, server]]
    for server, tags in servers:
        there.compute.wait_for_server(server)
        for tag in tags:
            there.compute.put(f"/servers/{server.id}/tags/{tag}", microversion="2.26").raise_for_status()
    json.dump(ids, sys.stdout)


def foreign_drop(*ids):
    for server in there.compute.servers():
        if server.id in ids:
            there.compute.delete_server(server, force=True)
            there.compute.wait_for_delete(server)
    for listed, delete in [
        (there.network.ips, there.network.delete_ip),
        (there.network.ports, there.network.delete_port),
        (there.network.security_groups, there.network.delete_security_group),
        (there.compute.server_groups, there.compute.delete_server_group),
        (there.image.images, there.image.delete_image),
    ]:
        for one in list(listed()):
            if one.id in ids:
                delete(one)


def network_put(name, cidr, external):
    network = there.network.create_network(name=name)
    subnet = there.network.create_subnet(name=name, network_id=network.id, ip_version=4, cidr=cidr)
    outside = there.network.find_network(external)
    router = there.network.create_router(name=name, external_gateway_info={"network_id": outside.id})
    there.network.add_interface_to_router(router, subnet_id=subnet.id)


def network_drop(name):
    router, subnet = there.network.find_router(name), there.network.find_subnet(name)
    there.network.remove_interface_from_router(router, subnet_id=subnet.id)
    there.network.delete_router(router)
    there.network.delete_network(there.network.find_network(name))


def plant(victim, mark, path):
    tag = f"ocpdeploy {mark}"
    group = there.network.create_security_group(name=tag, description=tag)
    there.network.create_security_group_rule(security_group_id=group.id, direction="ingress", ether_type="IPv4")
    there.network.create_rbac_policy(
        object_type="security_group",
        object_id=group.id,
        action="access_as_shared",
        target_project_id=openstack.connect(cloud=victim).current_project_id,
    )
    # Only administrators can make an image public.
    images, data = openstack.connect(cloud="admin").image, Path(path).read_bytes()
    made = {"name": "planted", "owner": mine, "visibility": "public", "disk_format": "qcow2", "container_format": "bare"}
    made |= {"tags": ["ocpdeploy"], "ocpdeploy_sha256": hashlib.sha256(data).hexdigest()}
    id = images.post("/images", json=made).json()["id"]
    content = {"Content-Type": "application/octet-stream"}
    images.put(f"/images/{id}/file", data=data, headers=content).raise_for_status()
    json.dump([group.id, id], sys.stdout)


def restrict(name, rules):
    # The library of this release has no access rules.
    user = f"/users/{there.current_user_id}"
    body = {"application_credential": {"name": name, "access_rules": json.loads(rules)}}
    answer = there.identity.post(f"{user}/application_credentials", json=body)
    answer.raise_for_status()
    made = answer.json()["application_credential"]
    json.dump([made["id"], made["secret"]], sys.stdout)


def unrestrict(name):
    # Access rules remain after their credential (keystone/api/users.py: UserAccessRuleGetDeleteResource).
    user = f"/users/{there.current_user_id}"
    for one in there.identity.get(f"{user}/application_credentials").json()["application_credentials"]:
        if one["name"] == name:
            there.identity.delete(f"{user}/application_credentials/{one['id']}").raise_for_status()
    for rule in there.identity.get(f"{user}/access_rules").json()["access_rules"]:
        there.identity.delete(f"{user}/access_rules/{rule['id']}").raise_for_status()


def has(service):
    print(json.dumps(there.has_service(service)))


def balancer_put(network, name, *tags):
    subnet = there.network.find_network(network).subnet_ids[0]
    put = there.load_balancer.create_load_balancer(name=name, vip_subnet_id=subnet, tags=list(tags))
    there.load_balancer.wait_for_load_balancer(put.id)
    print(put.id)


def balancer_drop(id):
    there.load_balancer.delete_load_balancer(id, cascade=True)
    while there.load_balancer.find_load_balancer(id):
        time.sleep(1)


def default_rules():
    (group,) = [one for one in own(there.network.security_groups()) if one.name == "default"]
    json.dump(sorted(map(json.dumps, group.security_group_rules)), sys.stdout)


def quota(*wanted):
    numbers = {key: int(number) for key, number in (pair.split("=") for pair in wanted)}
    of_nova = {key: number for key, number in numbers.items() if key in ("cores", "instances", "ram", "server_groups")}
    if of_nova:
        there.set_compute_quotas(mine, **of_nova)
    of_cinder = {key: number for key, number in numbers.items() if key in ("volumes", "gigabytes")}
    if of_cinder:
        there.set_volume_quotas(mine, **of_cinder)
    of_neutron = {key: number for key, number in numbers.items() if key not in of_nova | of_cinder}
    if of_neutron:
        there.set_network_quotas(mine, **of_neutron)


{
    "see": see,
    "server-put": server_put,
    "server-drop": server_drop,
    "server-delete": server_delete,
    "kept": kept,
    "port-put": port_put,
    "port-drop": port_drop,
    "port-keep": port_keep,
    "floating-put": floating_put,
    "floating-drop": floating_drop,
    "foreign-put": foreign_put,
    "foreign-drop": foreign_drop,
    "network-put": network_put,
    "network-drop": network_drop,
    "plant": plant,
    "restrict": restrict,
    "unrestrict": unrestrict,
    "has": has,
    "balancer-put": balancer_put,
    "balancer-drop": balancer_drop,
    "default-rules": default_rules,
    "quota": quota,
}[what](*arguments)
