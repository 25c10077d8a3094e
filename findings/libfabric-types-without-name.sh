#!/usr/bin/env bash
# Package: libfabric1 and libfabric-dev 2.1.0 (Debian 13).
# Guess:   fi_tostr names each constant of the headers of its own release, and fi_strerror says of a number that is no error that it is unknown.
# Seen:    The types for machine learning that the headers have, float16, bfloat16 and two of float8, are "Unknown", so are the operation FI_DIFF and two
#          of six threading models. Capabilities and flags without a name, from FI_XPU_TRIGGER to FI_PRIORITY, leave no trace in the text. FI_EOTHER and
#          any other number are the "Unspecified error", with either sign.
# Matters: A provider's attributes cannot be compared by this text: two that differ may read alike.
source "$(dirname "$0")/lib.sh"
debs trixie libfabric1=2.1.0-1.1 libfabric-dev=2.1.0-1.1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/names.py" <<'PY'
import ctypes
import glob
import re

library = ctypes.CDLL(glob.glob("/usr/lib/*/libfabric.so.1")[0])
library.fi_tostr.restype = library.fi_strerror.restype = ctypes.c_char_p
headers = "".join(open(path).read() for path in sorted(glob.glob("/usr/include/rdma/*.h")))


def enum(name):
    """The members without a value of their own, counted from 0."""
    body = re.sub(r"/\*.*?\*/", "", re.search(rf"enum {name} \{{(.*?)\}}", headers, re.S)[1], flags=re.S)
    return [member.strip() for member in body.split(",") if member.strip() and "=" not in member]


types = enum("fi_type")


def text(kind, value):
    return (library.fi_tostr(ctypes.byref(ctypes.c_uint64(value)), types.index(kind)) or b"").decode()


for kind, name in (("ATOMIC_TYPE", "fi_datatype"), ("ATOMIC_OP", "fi_op"), ("THREADING", "fi_threading"), ("PROGRESS", "fi_progress")):
    members = enum(name)
    other = [f"{member} {text('FI_TYPE_' + kind, value)!r}" for value, member in enumerate(members) if text("FI_TYPE_" + kind, value) != member]
    print(f"{name}: {len(members)} constants, other text:", ", ".join(other) or "none")
bits = {name: 1 << int(bit) for name, bit in re.findall(r"#define\s+(FI_\w+)\s+\(1ULL << (\d+)\)", headers)}
for name in ("FI_HMEM", "FI_XPU_TRIGGER", "FI_TAGGED_DIRECTED_RECV", "FI_TAGGED_MULTI_RECV", "FI_EXACT_DIRECTED_RECV", "FI_COMMIT_COMPLETE", "FI_PRIORITY"):
    seen = {text(f"FI_TYPE_{kind}", bits[name]) for kind in ("CAPS", "OP_FLAGS")} - {""}
    print(f"{name}:", " ".join(seen) or "''")
print({code: library.fi_strerror(code).decode() for code in (11, -11, 256, -256, 9999)})
PY
run python3 /tmp/names.py >"$seen"
check <<'OUT'
fi_datatype: 20 constants, other text: FI_FLOAT16 'Unknown', FI_BFLOAT16 'Unknown', FI_FLOAT8_E4M3 'Unknown', FI_FLOAT8_E5M2 'Unknown'
fi_op: 20 constants, other text: FI_DIFF 'Unknown'
fi_threading: 6 constants, other text: FI_THREAD_FID 'Unknown', FI_THREAD_ENDPOINT 'Unknown'
fi_progress: 4 constants, other text: none
FI_HMEM: FI_HMEM
FI_XPU_TRIGGER: ''
FI_TAGGED_DIRECTED_RECV: ''
FI_TAGGED_MULTI_RECV: ''
FI_EXACT_DIRECTED_RECV: ''
FI_COMMIT_COMPLETE: ''
FI_PRIORITY: ''
{11: 'Resource temporarily unavailable', -11: 'Resource temporarily unavailable', 256: 'Unspecified error', -256: 'Unspecified error', 9999: 'Unspecified error'}
OUT
echo ok
