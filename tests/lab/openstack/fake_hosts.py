"""Mechanism drivers of the lab for Neutron."""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class FakeHosts(api.MechanismDriver):
    """Binds ports on Nova's fake compute nodes immediately, without an agent."""

    def initialize(self):
        pass

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        if (context.host or "").startswith("fake"):
            segment = context.segments_to_bind[0]
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_BRIDGE,
                {portbindings.CAP_PORT_FILTER: True},
                status=constants.PORT_STATUS_ACTIVE,
            )


class Userspace(api.MechanismDriver):
    """Reports to Nova that OVN's bridges use the userspace datapath; listed before the driver `ovn`.

    Otherwise os-vif makes br-int a bridge of the kernel's datapath (vif_plug_ovs/ovs.py: _get_vif_datapath_type). Neutron's
    driver `openvswitch` puts the type into a port's details itself (mech_openvswitch.py: get_supported_vif_type).
    """

    def initialize(self):
        from neutron.plugins.ml2.drivers.ovn.mech_driver.mech_driver import OVNMechanismDriver

        setup = OVNMechanismDriver._setup_vif_port_bindings

        def with_datapath(driver):
            setup(driver)
            driver.vif_details[portbindings.VIF_TYPE_OVS][portbindings.OVS_DATAPATH_TYPE] = "netdev"

        OVNMechanismDriver._setup_vif_port_bindings = with_datapath
