"""Network driver of the lab for Octavia: all of Neutron is real, but there are no amphorae.

A port that would be plugged into an amphora is created, with the amphora as its device.
"""

from octavia.network.data_models import Interface
from octavia.network.drivers.neutron.allowed_address_pairs import AllowedAddressPairsDriver


class Ports(AllowedAddressPairsDriver):
    def plug_port(self, amphora, port):
        self.neutron_client.update_port(port.id, {"port": {"device_id": amphora.compute_id}})
        return Interface(
            compute_id=amphora.compute_id, network_id=port.network_id, port_id=port.id, fixed_ips=port.fixed_ips
        )

    def plug_network(self, compute_id, network_id):
        body = {"network_id": network_id, "device_id": compute_id, "device_owner": "Octavia"}
        port = self.get_port(self.neutron_client.create_port({"port": body})["port"]["id"])
        return Interface(compute_id=compute_id, network_id=network_id, port_id=port.id, fixed_ips=port.fixed_ips)

    def unplug_network(self, compute_id, network_id):
        for plugged in self._plugged(compute_id):
            if plugged.network_id == network_id:
                self._detach(plugged.port_id)

    def _plugged(self, compute_id):
        return self.get_plugged_networks(compute_id) if compute_id else []

    def _detach(self, port_id):
        """Nova deletes ports that it created, with the amphora or on detach; Octavia deletes the other port."""
        if self.get_port(port_id).name.startswith("octavia-lb-vrrp-"):
            self.neutron_client.update_port(port_id, {"port": {"device_id": ""}})
        else:
            self.neutron_client.delete_port(port_id)

    def deallocate_vip(self, vip):
        for amphora in vip.load_balancer.amphorae:
            for plugged in self._plugged(amphora.compute_id):
                self._detach(plugged.port_id)
        super().deallocate_vip(vip)
