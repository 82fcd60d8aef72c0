"""Prints how openstacksdk reads clouds: the sign-in that it sends, the region, and interface and endpoint of each service.

read.py CASES   CASES is a JSON list of {"folder", "variables", "cloud", "region"}; prints a JSON list of the results

Each case is read in a process of its own, with its variables and current directory.
"""

import importlib
import json
import logging
import os
import sys
import warnings

import requests
from keystoneauth1 import session
from openstack.config import loader
from requests.adapters import BaseAdapter

SERVICES = ["compute", "network", "image", "block-storage", "object-store", "load-balancer"]


class Keystone(BaseAdapter):
    """Records the sign-in instead of sending it. All other requests get the version document of Keystone."""

    sent = None

    def send(self, request, **_):
        root = request.url.split("/v2.0")[0].split("/v3")[0].rstrip("/")
        response = requests.Response()
        response.request, response.url, response.status_code = request, request.url, 200
        links = [{"rel": "self", "href": f"{root}/v3/"}]
        answer = {"versions": {"values": [{"id": "v3.14", "status": "stable", "links": links}]}}
        if request.method == "POST":
            self.sent = {"url": request.url, "body": json.loads(request.body)}
            response.status_code = 201
            response.headers["X-Subject-Token"] = "token"
            answer = {"token": {"expires_at": "2999-01-01T00:00:00.000000Z", "methods": [], "catalog": []}}
        response._content = json.dumps(answer).encode()
        return response

    def close(self):
        pass


def read(case):
    os.chdir(case["folder"])
    os.environ.clear()
    os.environ.update(case["variables"])
    # Directories are determined when the module is imported.
    importlib.reload(loader)
    cloud = loader.OpenStackConfig().get_one(cloud=case["cloud"], **({"region_name": case["region"]} if case["region"] else {}))
    keystone, connection = Keystone(), requests.Session()
    for scheme in ("http://", "https://"):
        connection.mount(scheme, keystone)
    cloud.get_auth().get_access(session.Session(session=connection))
    return keystone.sent | {
        "region": cloud.get_region_name() or None,
        "interfaces": [cloud.get_interface(service) for service in SERVICES],
        "endpoints": [cloud.get_endpoint(service) for service in SERVICES],
    }


def in_process(case):
    out, into = os.pipe()
    if os.fork() == 0:
        try:
            result = read(case)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(into, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        result = json.load(pipe)
    os.wait()
    return result


warnings.simplefilter("ignore")
logging.disable()
with open(sys.argv[1]) as cases:
    json.dump([in_process(case) for case in json.load(cases)], sys.stdout)
