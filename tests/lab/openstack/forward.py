"""forward.py PORT,PORT.. NETNS..: forwards the services' ports to the loopback of other compute nodes' namespaces."""

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace):
    if libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        try:
            writer.write_eof()
        except OSError:
            pass


async def main():
    listening, home = [], os.open("/proc/self/ns/net", os.O_RDONLY)
    for namespace in sys.argv[2:]:
        enter(os.open("/run/netns/" + namespace, os.O_RDONLY))
        for port in map(int, sys.argv[1].split(",")):
            listening.append((socket.create_server(("127.0.0.1", port), backlog=100), port))
    enter(home)
    for listener, port in listening:

        async def serve(reader, writer, port=port):
            try:
                there, here = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(pump(reader, here), pump(there, writer))
            writer.close()
            here.close()

        await asyncio.start_server(serve, sock=listener)
    await asyncio.Event().wait()


asyncio.run(main())
