#!/usr/bin/env python3
"""Checks the crates that the lock files name: licences, where they come from, versions beside each other, the compilers that
they ask for, and advisories.

    python3 .ci/dependencies.py MANIFEST...          checks; ends in the number of crates, or with what is wrong
    python3 .ci/dependencies.py --advisories FOLDER  prints .ci/advisories.txt anew from a clone of RustSec's advisory-db

cargo-deny does the same and takes longer to build than all that CI has for it; and it fetches advisories, where nothing but
crates can be had. The file of advisories is pinned, and has those of all crates.
"""

import json
import pathlib
import re
import subprocess
import sys

ADVISORIES = pathlib.Path(__file__).with_name("advisories.txt")

# The crates may be used under these licences. NCSA is libFuzzer's, which is linked into fuzz targets only.
LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "MIT", "NCSA", "Unicode-3.0",
    "Unlicense", "Zlib",
}

# Crates of which there are several versions, and why.
SEVERAL = {
    "bitflags": "vfio_user is at 1, what it is built from at 2",
    "hashbrown": "petgraph is behind others",
    "syn": "derive macros move from 2 to 3 one by one",
    "windows-link": "for Windows only",
}


def permitted(expression):
    """Whether a licence expression can be met.

    >>> permitted("MIT/GPL-3.0"), permitted("(MIT OR GPL-3.0) AND Zlib"), permitted("MIT AND GPL-3.0"), permitted(None)
    (True, True, False, False)
    >>> permitted("Apache-2.0 WITH LLVM-exception OR GPL-3.0"), permitted("Apache-2.0 WITH Other")
    (True, False)
    """
    words = re.findall(r"[()]|[^\s()]+", (expression or "none").replace("/", " OR "))
    words.append("")

    def one():
        if words[0] == "(":
            words.pop(0)
            met = either()
            words.pop(0)
            return met
        name = words.pop(0)
        if words[0] == "WITH":
            name = f"{name} {words.pop(0)} {words.pop(0)}"
        return name in LICENCES

    def both():
        met = one()
        while words[0] == "AND":
            words.pop(0)
            met = one() and met
        return met

    def either():
        met = both()
        while words[0] == "OR":
            words.pop(0)
            met = both() or met
        return met

    return either() and words == [""]


def version(text):
    """A version as numbers to be compared; what is missing is 0, and a release is above what came before it.

    >>> version("1.2") < version("1.2.1-rc.1") < version("1.2.1"), version("1.2.3+x") == version("1.2.3")
    (True, True)
    """
    numbers, _, before = text.partition("+")[0].partition("-")
    numbers = ([int(number) for number in numbers.split(".")] + [0, 0])[:3]
    return (*numbers, not before, before)


def matches(found, requirement):
    """Whether a version meets all parts of a requirement, as Cargo has them.

    >>> [matches("1.8.4", r) for r in [">= 1.8.4, < 1.9.0", "< 1.8.4", "^1.2", "^1.9", "= 1.8.4", "~1.8"]]
    [True, False, True, False, True, True]
    >>> matches("0.4.9", "^0.3.1"), matches("0.3.9", "^ 0.3.1")
    (False, True)
    """
    found = version(found)

    def part(text):
        sign, text = re.fullmatch(r"([<>=^~]*)\s*(\S+)", text.strip()).groups()
        wanted = version(text)
        if sign in ("^", "", "~"):
            # Up to where the first number that counts changes.
            fixed = next((place for place in range(3) if wanted[place]), 2)
            fixed = min(1, text.count(".")) if sign == "~" else fixed
            return found >= wanted and found[: fixed + 1] == wanted[: fixed + 1]
        return {
            "<": found < wanted, "<=": found <= wanted, ">": found > wanted, ">=": found >= wanted, "=": found == wanted,
        }[sign]

    return all(part(text) for text in requirement.split(","))


def advisories(lines):
    """The advisories of a file: crate, identifier, and the requirements that a good version meets one of.

    >>> list(advisories(["# x", "a RUSTSEC-1 >= 1, < 2 || > 3"]))
    [('a', 'RUSTSEC-1', ['>= 1, < 2', '> 3'])]
    """
    for line in lines:
        if line.strip() and not line.startswith("#"):
            crate, identifier, good = (line.rstrip() + " ").split(" ", 2)
            yield crate, identifier, [part.strip() for part in good.split("||") if part.strip()]


def too_new(metadata):
    """The crates of ours with one among their dependencies that asks for a newer compiler than they do. A crate of ours that
    is there by a feature only does not count.

    >>> def package(name, rust, *names, source=None, optional=False):
    ...     dependencies = [{"name": name, "kind": None, "optional": optional} for name in names]
    ...     return {"id": name, "name": name, "rust_version": rust, "source": source, "dependencies": dependencies}
    >>> packages = [package("a", "1.2", "b"), package("b", None, "c", source="x"), package("c", "1.10", source="x")]
    >>> nodes = [{"id": "a", "deps": [{"pkg": "b"}]}, {"id": "b", "deps": [{"pkg": "c"}]}, {"id": "c", "deps": []}]
    >>> list(too_new({"packages": packages, "resolve": {"nodes": nodes}}))
    ['a says Rust 1.2, and c asks for 1.10']
    >>> packages[:2] = [package("a", "1.2", "b", optional=True), package("b", "1.10", "c")]
    >>> list(too_new({"packages": packages, "resolve": {"nodes": nodes}}))
    []
    """
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: [dependency["pkg"] for dependency in node["deps"]] for node in metadata["resolve"]["nodes"]}

    def needs(package):
        wanted = {
            dependency["name"]: dependency["optional"]
            for dependency in package["dependencies"] if dependency["kind"] != "dev"
        }
        for needed in map(packages.get, nodes[package["id"]]):
            if needed["name"] in wanted and not (wanted[needed["name"]] and needed["source"] is None):
                yield needed

    for package in packages.values():
        if package["source"] is not None or package["rust_version"] is None:
            continue
        found, left = {package["id"]: package}, [package]
        while left:
            for needed in needs(left.pop()):
                if needed["id"] not in found:
                    found[needed["id"]] = needed
                    left.append(needed)
        for needed in found.values():
            if version(needed["rust_version"] or "0") > version(package["rust_version"]):
                yield f"{package['name']} says Rust {package['rust_version']}, and {needed['name']} asks for {needed['rust_version']}"


def check(manifests):
    crates, wrong = {}, []
    for manifest in manifests:
        command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", manifest]
        of_one = {}
        for package in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]:
            # Without a source, it is one of ours.
            if package["source"] is not None:
                crates[package["name"], package["version"]] = package
                of_one.setdefault(package["name"], set()).add(package["version"])
        for name, versions in of_one.items():
            if len(versions) > 1 and name not in SEVERAL:
                wrong.append(f"{manifest}: {name} in versions {', '.join(sorted(versions))}")
    # Of other systems there are crates that are never built.
    machine = re.search("host: (.*)", subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout)[1]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", machine]
    wrong += too_new(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    names = {name for name, _ in crates}
    wrong += [f"{name}: there is none, but it may have several versions" for name in SEVERAL if name not in names]
    for (name, number), package in sorted(crates.items()):
        if not permitted(package["license"]):
            wrong.append(f"{name} {number}: licence {package['license']}")
    # Of one registry, and of no repository.
    sources = {package["source"] for package in crates.values()}
    if len(sources) != 1 or not all(source.startswith("registry+") for source in sources):
        wrong.append(f"crates come from {', '.join(sorted(sources))}")
    known = list(advisories(ADVISORIES.read_text().splitlines()))
    for crate, identifier, good in known:
        for name, number in sorted(crates):
            if name == crate and not any(matches(number, requirement) for requirement in good):
                wrong.append(f"{name} {number}: {identifier}, mended in {' or '.join(good) or 'no version'}")
    print(f"{len(crates)} crates, {len(known)} advisories")
    for line in wrong:
        print(f"FAILED: {line}")
    return 1 if wrong or not crates or not known else 0


def print_advisories(folder):
    import tomllib

    head = subprocess.run(["git", "-C", folder, "log", "-1", "--format=%H of %cs"], check=True, capture_output=True, text=True)
    print(f"# RustSec's advisories, commit {head.stdout.strip()}: crate, identifier, and what versions are good, by")
    print("# .ci/dependencies.py --advisories. Those that are withdrawn, or say that a crate is not maintained, are left out.")
    listed = subprocess.run(["git", "-C", folder, "ls-tree", "-r", "--name-only", "HEAD", "crates"], check=True, capture_output=True, text=True)
    for file in sorted(listed.stdout.split()):
        shown = subprocess.run(["git", "-C", folder, "show", f"HEAD:{file}"], check=True, capture_output=True, text=True)
        text = tomllib.loads(shown.stdout.split("```toml", 1)[1].split("```", 1)[0])
        about, versions = text["advisory"], text.get("versions", {})
        if "withdrawn" in about or about.get("informational") in ("unmaintained", "notice"):
            continue
        good = versions.get("patched", []) + versions.get("unaffected", [])
        print(f"{about['package']} {about['id']} {' || '.join(good)}".rstrip())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--advisories"]:
        print_advisories(sys.argv[2])
    else:
        sys.exit(check(sys.argv[1:]))
