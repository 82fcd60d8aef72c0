"""Compares the elements of the engine's XML with those that the official SDK reads and writes.

The SDK skips unknown elements and reads an unknown value of an enumeration as none; here, both are errors.
"""

import inspect
import re
import xml.etree.ElementTree as ElementTree

from ovirtsdk4 import readers, types
from ovirtsdk4.reader import Reader

ANSWERS = 0
SEEN = set()


class Unknown(AssertionError):
    """An element or value that the SDK does not know."""


# The file is large, so it is split only once.
_TEXT = inspect.getsource(readers)
SOURCES = {part.split("(", 1)[0]: part for part in re.split(r"^class ", _TEXT, flags=re.M)[1:]}


def reader_of(tag):
    """The class that reads an element, and whether the element is a list."""
    read = Reader._readers.get(tag)
    if read is None:
        raise Unknown(f"<{tag}>")
    name, method = read.__qualname__.split(".")
    return getattr(readers, name), method == "read_many"


def fields_of(reader):
    """Each element that a reader knows, with its reader or scalar type; links by their rel."""
    source = SOURCES[reader.__name__]
    found = re.findall(r"tag == '(\w+)':\s+obj\.\w+ = ([\w.]+)\((types\.\w+)?", source)
    fields = {tag: (how, kind) for tag, how, kind in found}
    links = set(re.findall(r"rel == ['\"](\w+)['\"]", source))
    return fields, links


def check(element, reader, path):
    """Traverses an element like its reader."""
    fields, links = fields_of(reader)
    for attribute in element.attrib:
        if attribute not in ("id", "href"):
            raise Unknown(f"{path}@{attribute}")
    for child in element:
        at = f"{path}/{child.tag}"
        SEEN.add(at)
        if child.tag == "link":
            rel = child.get("rel")
            # The root of the API has a link to every collection, which the SDK does not need.
            if rel not in links and rel != "creation_status" and reader is not readers.ApiReader:
                raise Unknown(f"{at}: {rel}")
            continue
        if child.tag not in fields:
            raise Unknown(at)
        how, kind = fields[child.tag]
        if how.startswith("Reader."):
            scalar(how, kind, child, at)
        elif how.endswith(".read_many"):
            for one in child:
                check(one, getattr(readers, how.removesuffix(".read_many")), f"{at}/{one.tag}")
        elif how.endswith(".read_one"):
            check(child, getattr(readers, how.removesuffix(".read_one")), at)
        else:
            raise Unknown(f"{at}: read by {how}")


def scalar(how, enumeration, element, at):
    how = how.removeprefix("Reader.read_")
    if how.startswith("enum"):
        known = [value.value for value in getattr(types, enumeration.removeprefix("types."))]
        for leaf in list(element) or [element]:
            if leaf.text not in known:
                raise Unknown(f"{at}: {leaf.text} is none of {known}")
        return
    if len(element) and how != "strings":
        raise Unknown(f"{at}: has elements")
    text = (element.text or "").strip()
    if how in ("integer", "decimal"):
        float(text)
    elif how == "boolean" and text not in ("true", "false"):
        raise Unknown(f"{at}: {text}")
    elif how == "date":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)", text), f"{at}: {text}"


def answer(body):
    """Checks one response: its root, all elements below, and each value of an enumeration must be known."""
    global ANSWERS
    ANSWERS += 1
    root = ElementTree.fromstring(body)
    reader, is_many = reader_of(root.tag)
    if is_many:
        for child in root:
            check(child, reader, child.tag)
    else:
        check(root, reader, root.tag)


def watch(connection):
    """Checks every XML response of a connection before the SDK reads it."""
    wait = connection.wait

    def looked_at(context, **options):
        response = wait(context, **options)
        body = response.body
        if body and body.lstrip().startswith(b"<") and b"<html" not in body:
            answer(body)
        return response

    connection.wait = looked_at


def fine(found):
    """A listing is not empty, and each entry has an id."""
    assert found is not None
    assert all(one.id for one in found), found


def requests_exist(shapes):
    """Every element that the fake accepts in a request exists in the SDK's types."""
    for root, paths in shapes.items():
        for path in paths:
            (reader, _), member = reader_of(root), None
            for tag in path.split("/"):
                if member:
                    reader, member = member, None
                    continue
                fields, _ = fields_of(reader) if reader else ({}, None)
                if tag not in fields:
                    raise Unknown(f"request {root}/{path}: {tag}")
                how, _ = fields[tag]
                if how.endswith(".read_many"):
                    member = getattr(readers, how.removesuffix(".read_many"))
                elif how.endswith(".read_one"):
                    reader = getattr(readers, how.removesuffix(".read_one"))
                elif how == "Reader.read_enums":
                    break
                else:
                    reader = None
