#!/usr/bin/env python3
"""decode_all.py FILE WORD...: prints each WORD that FILE contains, plain or decoded, and how it was found.

Decodes tar, gzip, base64 in both alphabets (wrapped, at each alignment), percent encoding and JSON escapes, also nested.
"""
import base64, gzip, io, re, sys, tarfile, urllib.parse, zlib

words = [word.encode() for word in sys.argv[2:]]
seen = set()


def look(data, how):
    if data in seen or len(how) > 8:
        return
    seen.add(data)
    for word in words:
        if word in data:
            print(word.decode(), 'by', ' '.join(how) or 'itself')
    if data[257:262] == b'ustar':
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                if member.isfile():
                    look(tar.extractfile(member).read(), how + ['tar:' + member.name])
        return
    for found in re.finditer(b'\x1f\x8b\x08', data):
        unpacker = zlib.decompressobj(31)
        try:
            look(unpacker.decompress(data[found.start():], 1 << 26), how + ['gzip'])
        except zlib.error:
            pass
    for run in re.findall(rb'[A-Za-z0-9+/_-]{6,}(?:\s*\n\s*[A-Za-z0-9+/_-]+)*', data):
        run = re.sub(rb'\s', b'', run).translate(bytes.maketrans(b'-_', b'+/'))
        for skipped in range(4):
            part = run[skipped:]
            part = part[:len(part) // 4 * 4 + (len(part) % 4 if len(part) % 4 > 1 else 0)]
            look(base64.b64decode(part + b'=' * (-len(part) % 4)), how + ['base64'])
    if re.search(rb'%[0-9a-fA-F]{2}', data):
        look(urllib.parse.unquote_to_bytes(data), how + ['percent'])
    if b'\\' in data:
        text = re.sub(rb'\\u([0-9a-fA-F]{4})', lambda m: chr(int(m[1], 16)).encode(errors='replace'), data)
        look(re.sub(rb'\\(.)', lambda m: {b'n': b'\n', b't': b'\t', b'r': b'\r'}.get(m[1], m[1]), text), how + ['escapes'])


with open(sys.argv[1], 'rb') as file:
    look(file.read(), [])
