"""Layouts of the mlx5 structures in C headers, for the scripts that compare them with one another or with mstflint's databases.

A structure is a dict from a field's name to (first bit, bits), bit 0 being the highest one of the first byte.
"""
import re
from xml.etree import ElementTree

MEMBER = re.compile(r"(?P<open>struct|union) \{|\}\s*\w*\s*(?P<dims>(?:\[\w+\])*);|(?:u8|(?:struct|union) (?P<type>\w+))\s+(?P<name>\w+)(?P<size>(?:\[\w+\])*);")


def product(dimensions):
    result = 1
    for number in re.findall(r"\w+", dimensions):
        result *= int(number, 0)
    return result


class Header:
    """A header in the manner of mlx5_ifc.h, in which one u8 stands for one bit."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        self.bodies = {m[2]: (m[1], m[3]) for m in re.finditer(r"^(struct|union) (\w+) \{\n(.*?)^\};", text, re.S | re.M)}
        self.done = {}

    def fields(self, name):
        return self.layout(f"mlx5_ifc_{name}_bits")[0]

    def bits(self, name):
        return self.layout(f"mlx5_ifc_{name}_bits")[1]

    def layout(self, name):
        if name not in self.done:
            self.done[name] = self.walk(*self.bodies[name])
        return self.done[name]

    def walk(self, kind, body):
        fields = {}
        at, widest = 0, 0
        outer = []
        for member in MEMBER.finditer(body):
            if member["open"]:
                outer.append((kind, at, widest))
                kind, widest = member["open"], 0
                continue
            if member["name"]:
                bits = product(member["size"]) * (self.layout(member["type"])[1] if member["type"] else 1)
                fields[member["name"]] = (at, bits)
            else:
                bits = widest if kind == "union" else at - outer[-1][1]
                bits *= product(member["dims"])
                kind, at, widest = outer.pop()
            if kind == "union":
                widest = max(widest, bits)
            else:
                at += bits
        return fields, widest if kind == "union" else at


def words(path, name):
    """A structure of __be16, __be32, __be64 and u8 members: its fields as above."""
    with open(path, encoding="utf-8") as file:
        text = file.read()

    def walk(name):
        fields, at = {}, 0
        for kind, nested, member, size in re.findall(r"^\t(?:(__be\d+|u8)|struct (\w+))\s+(\w+)((?:\[\w+\])*);", body(name), re.M):
            bits = product(size) * (walk(nested)[1] if nested else int(kind.lstrip("__beu")))
            fields[member] = (at, bits)
            at += bits
        return fields, at

    def body(name):
        return re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.S | re.M)[1]

    return walk(name)[0]


class Registers:
    """A register database of mstflint, whose offsets are BYTE.BIT with the bit counted from the lowest one of a 32-bit word."""

    def __init__(self, path):
        self.nodes = {node.get("name"): node for node in ElementTree.parse(path).getroot().iter("node")}

    @staticmethod
    def number(text):
        whole, bits = text.split(".")
        return int(whole, 16) * 8 + int(bits)

    def bytes(self, name):
        return self.number(self.nodes[name].get("size")) // 8

    def fields(self, name):
        result = {}
        for field in self.nodes[name].findall("field"):
            at, bits = self.number(field.get("offset")), self.number(field.get("size"))
            result[field.get("name")] = (at, bits) if bits >= 32 else (at // 32 * 32 + 32 - at % 32 - bits, bits)
        return result
