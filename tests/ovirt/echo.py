"""echo.py REQUESTS.json: compares recorded requests with those that oVirt's own SDK sends for the same operations.

For each recorded request, the SDK performs the same operation: the service of the path, the method of the verb, the body as
an object of the SDK's types, the query as arguments. A server that accepts everything records the SDK's request. Both are
compared: method, path, query, relevant headers, and XML regardless of the order of elements.
"""

import http.server
import inspect
import json
import sys
import threading
import urllib.parse
import xml.etree.ElementTree as ElementTree

import ovirtsdk4 as sdk
from ovirtsdk4 import services
from ovirtsdk4.reader import Reader

API = "/ovirt-engine/api"
SESSION = "/ovirt-engine/sso/oauth/token"
SENT = []


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def record(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode()
        path, _, query = self.path.partition("?")
        SENT.append({
            "method": self.command,
            "path": path,
            "query": dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body,
        })
        kind, text = "application/xml", "<action><status>complete</status></action>"
        if not path.startswith(API):
            kind, text = "application/json", '{"access_token": "token", "exp": "1"}'
        elif self.command == "GET":
            text = "<vms/>"
        elif self.command in ("POST", "PUT") and not body.startswith("<action"):
            text = f'<{ElementTree.fromstring(body).tag} id="1"/>'
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = do_DELETE = record


def arguments(method, query):
    """The query as arguments; parameters that every request may have are passed unchanged."""
    known = inspect.signature(method).parameters
    given, rest = {}, {}
    for name, value in query.items():
        name = {"from": "from_", "async": "async_"}.get(name, name)
        if name == "correlation_id":
            rest[name] = value
        elif name not in known:
            raise ValueError(f"the SDK knows no query {name} for it")
        elif value in ("true", "false"):
            given[name] = value == "true"
        else:
            given[name] = int(value) if name in ("max", "from_") else value
    return given | {"query": rest}


def replay(system, request):
    """Performs the same operation with the SDK."""
    path = request["path"].removeprefix(API).strip("/")
    verb, query, body = request["method"], request["query"], request["body"]
    if body:
        # The SDK reads `<name/>` as no name, and `<name></name>`, which is the same XML, as an empty one.
        body = ElementTree.tostring(ElementTree.fromstring(body), encoding="unicode", short_empty_elements=False)
    if verb == "POST":
        parent, _, last = path.rpartition("/")
        last = {"commitsnapshot": "commit_snapshot"}.get(last, last)
        owner = system.service(parent)
        act = getattr(owner, last, None)
        if act is not None and not hasattr(owner, f"{last}_service"):
            fields = {name.lstrip("_"): value for name, value in vars(Reader.read(body)).items() if value is not None}
            fields = {{"async": "async_"}.get(name, name): value for name, value in fields.items()}
            return act(**fields, **arguments(act, query))
        add = system.service(path).add
        return add(Reader.read(body), **arguments(add, query))
    service = system.service(path)
    if verb == "PUT":
        return service.update(Reader.read(body), **arguments(service.update, query))
    if verb == "DELETE":
        return service.remove(**arguments(service.remove, query))
    look = getattr(service, "list", None) or service.get
    return look(**arguments(look, query))


def canonical(element):
    """A normal form in which only the order of elements with the same name matters."""
    children = sorted(element, key=lambda child: child.tag)
    text = "" if children else element.text or ""
    return [element.tag, sorted(element.attrib.items()), text, [canonical(child) for child in children]]


def form(request):
    """The relevant parts of a request."""
    headers = request["headers"]
    counting = {name: headers.get(name) for name in ("version", "accept")}
    bearer = headers.get("authorization", "").startswith("Bearer ")
    body = request["body"].strip()
    if body:
        counting["content-type"] = headers.get("content-type")
    if request["path"] == SESSION:
        # Ignore the values of user and password.
        secrets = {"username", "password"}
        body = sorted((name, name if name in secrets else value) for name, value in urllib.parse.parse_qsl(body))
    elif body:
        body = canonical(ElementTree.fromstring(body))
    path = request["path"].rstrip("/")
    return {"method": request["method"], "path": path, "query": request["query"], "headers": counting,
            "bearer": bearer, "body": body}


def main(file):
    with open(file, encoding="utf-8") as opened:
        requests = json.load(opened)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}{API}"
    connection = sdk.Connection(url=url, username="user", password="password")
    system = services.SystemService(connection, "")
    compared, different = 0, []
    for request in requests:
        if request["path"] == SESSION:
            # Each session begins with its own request.
            fresh = sdk.Connection(url=url, username="user", password="password")
            SENT.clear()
            fresh.authenticate()
        elif request["path"].startswith(API):
            connection.authenticate()
            SENT.clear()
            try:
                replay(system, request)
            except Exception as error:
                different.append(f"{request['method']} {request['path']} {request['query']}: {error}\n  {request['body']}")
                continue
        else:
            continue
        compared += 1
        ours, theirs = form(request), form(SENT[-1])
        for part in ours:
            if ours[part] != theirs[part]:
                different.append(f"{request['method']} {request['path']}: {part}\n  ours   {ours[part]}\n  SDK's  {theirs[part]}")
    print(f"{compared} requests are compared with the SDK's")
    if different:
        print("\n".join(different))
        sys.exit(1)


main(*sys.argv[1:])
