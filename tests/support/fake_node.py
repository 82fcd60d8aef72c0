"""Simulates the programs that OpenShift runs on a node: `api` serves /readyz of an API on 6443 and /healthz of a machine
config server on 22623, both over TLS; `router` serves /healthz/ready on 1936 and requests on 80.

Each responds to /who with its name and to /stream with a line every 0.2 s. The process id is in /run/fake-KIND.pid. While
/run/fake-KIND.unready exists, it reports that it is not ready. While /run/fake-KIND.slow exists, it delays health responses
by the number of seconds in that file.
"""
import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import time

kind, name, certificate = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.end_headers()
            for n in range(10_000):
                self.wfile.write(f"{name} {n}\n".encode())
                time.sleep(0.2)
            return
        health = self.path in ("/readyz", "/healthz", "/healthz/ready")
        if health and os.path.exists(f"/run/fake-{kind}.slow"):
            with open(f"/run/fake-{kind}.slow") as seconds:
                time.sleep(float(seconds.read()))
        unready = health and os.path.exists(f"/run/fake-{kind}.unready")
        self.send_response(500 if unready else 200)
        self.end_headers()
        self.wfile.write(f"{name}\n".encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Listens on all addresses of both families."""

    address_family = socket.AF_INET6


class OfIpv4(http.server.ThreadingHTTPServer):
    """Listens like an API server in a cluster whose first family is IPv4 (openshift/cluster-kube-apiserver-operator:
    pkg/operator/configobservation/network/observe_network.go: tcp4)."""


class OfIpv6(Server):
    """Listens like an API server in a cluster without IPv4: tcp6."""

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


def serve(port, tls):
    if port != 6443:
        server = Server(("::", port), Handler)
    elif b"inet " in subprocess.check_output(["ip", "-4", "addr", "show", "scope", "global"]):
        server = OfIpv4(("0.0.0.0", port), Handler)
    else:
        server = OfIpv6(("::", port), Handler)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The connection's own thread does the handshake; otherwise a slow client would block all others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever).start()


for port in {"api": (6443, 22623), "router": (1936, 80)}[kind]:
    serve(port, kind == "api")
with open(f"/run/fake-{kind}.pid", "w") as file:
    file.write(str(os.getpid()))
