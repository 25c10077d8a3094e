#!/usr/bin/env bash
# Package: libibmad5 56.1 (Debian 13).
# Guess:   Masks of widths and speeds print their members joined by "or"; 255 in LinkWidthEnabled and 15 in LinkSpeedEnabled, which OpenSM writes as
#          "all that is supported", print such words.
# Seen:    A mask without 1X, or without 2.5 Gb/s, has " (IBA extension)" after it, so a plain 4X mask is called an extension; 255 and 15 list each
#          known member and then "or undefined (255)".
# Matters: The suffix is part of smpquery's and iblinkinfo's texts, so parsers of LinkWidthSupported meet it on ports limited to 4X.
source "$(dirname "$0")/lib.sh"
debs trixie libibmad5=56.1-1 python3
mkdir -p "$tmp/share"
cat >"$tmp/share/masks.py" <<'PY'
import ctypes

mad = ctypes.CDLL("libibmad.so.5")
for name, values in (("linkwidthsup", (3, 2, 18)), ("linkwidthen", (2, 255)), ("linkspeeden", (7, 6, 15)), ("linkspeedexten", (14, 15, 30, 31))):
    for value in values:
        text = ctypes.create_string_buffer(200)
        getattr(mad, "mad_dump_" + name)(text, 200, (ctypes.c_uint32 * 4)(value), 4)
        print(name, value, text.value.decode())
PY
run python3 /tmp/masks.py >"$seen"
check <<'OUT'
linkwidthsup 3 1X or 4X
linkwidthsup 2 4X (IBA extension)
linkwidthsup 18 4X or 2X (IBA extension)
linkwidthen 2 4X
linkwidthen 255 1X or 4X or 8X or 12X or 2X or undefined (255)
linkspeeden 7 2.5 Gbps or 5.0 Gbps or 10.0 Gbps
linkspeeden 6 5.0 Gbps or 10.0 Gbps (IBA extension)
linkspeeden 15 2.5 Gbps or 5.0 Gbps or 10.0 Gbps or undefined (15)
linkspeedexten 14 25.78125 Gbps or 53.125 Gbps or 106.25 Gbps
linkspeedexten 15 14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps or 106.25 Gbps
linkspeedexten 30 Extended link speeds disabled
linkspeedexten 31 14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps or 106.25 Gbps or undefined (31)
OUT
echo ok
