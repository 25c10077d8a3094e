#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13).
# Guess:   mstvpd decodes vital product data from a file or from its standard input ("-"), as its help says, for an image that was read elsewhere: name, part number
#          and serial number with their keywords.
# Seen:    The standard input is not read: no output, no error message, exit code 3. Of a file the name is refused as that of a device. Of the help's
#          four forms only those of a device are left, although the options for data without a valid sum are there.
# Matters: VPD of a card that another program has read, ours as well, is to be decoded by other means.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4 bash coreutils
mkdir -p "$tmp/share"
python3 - >"$tmp/share/vpd" <<'PY'
import sys


def resource(tag, data):
    return bytes([tag]) + len(data).to_bytes(2, "little") + data


def keyword(name, value):
    return name.encode() + bytes([len(value)]) + value


fields = keyword("PN", b"MCX0000-TEST") + keyword("EC", b"A1") + keyword("SN", b"MT0000X00000")
read_only = resource(0x82, b"test adapter") + resource(0x90, fields + keyword("RV", b"\0"))
sum_at = len(read_only) - 1
data = read_only[:sum_at] + bytes([-sum(read_only) % 256])
sys.stdout.buffer.write(data + resource(0x91, keyword("RW", bytes(8))) + b"\x78")
PY
{
    run mstvpd -h | grep -E '<file>|file	|standard input|sum'
    for form in 'mstvpd - <vpd' 'mstvpd -n - <vpd' 'mstvpd /tmp/vpd' 'mstvpd - -- PN <vpd'; do
        echo "$form: $(run bash -c "cd /tmp; $form; echo \"exit code \$?\"" 2>&1 | paste -sd ' ')"
    done
} >"$seen"
check <<'OUT'
Usage: mstvpd [-m|-n|-r] [-t ##] <file> [-- keyword ...]
-n	Do not validate check sum.
file	The PCI id number of the HCA (for example, "2:00.0"),
	or '-' to read VPD data from the standard input.
mstvpd - <vpd: exit code 3
mstvpd -n - <vpd: exit code 3
mstvpd /tmp/vpd: Unable to parse device name /tmp/vpd -E- Failed to open device /tmp/vpd! exit code 3
mstvpd - -- PN <vpd: exit code 3
OUT
echo ok
