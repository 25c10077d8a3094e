#!/usr/bin/env bash
# Package: mstflint 4.31.0 (Debian 13).
# Guess:   mstconfig prepares a card's configuration without a card, as its help says: gen_tlvs_file lists the settings, gen_xml_template makes a form of
#          those chosen, xml2raw and xml2bin turn the filled form into a file for set_raw or a boot server, raw2xml turns it back.
# Seen:    One direction is missing: xml2raw and xml2bin open the form and then end with exit code 3, "the tool was not compiled against libxml2". The list,
#          the form and raw2xml work, and the help of the same program lists all of them.
# Matters: A form of this package can be filled in but not used: a configuration for many cards is set on each by name, or written as a raw file by hand.
source "$(dirname "$0")/lib.sh"
debs trixie mstflint=4.31.0+1-4
mkdir -p "$tmp/share"
cd "$tmp/share"
mst() { run mstconfig "$@" >log 2>&1 && echo "mstconfig $1: exit code 0" || echo "mstconfig $1: exit code $?$(sed -n 's/^-E-/,/p' log)"; }
{
    mst gen_tlvs_file /tmp/tlvs
    sed -i -E 's/^(nv_vpi_link_type +)0/\11/' tlvs
    mst gen_xml_template /tmp/tlvs /tmp/form.xml
    sed -i 's|<default_link_type></|<default_link_type>ETH</|' form.xml
    grep link_type form.xml
    mst xml2raw /tmp/form.xml /tmp/raw
    mst xml2bin /tmp/form.xml /tmp/bin
    printf '%s\n' MLNX_RAW_TLV_FILE '% TLV Type: 0x01010012' '0x00000004 0x01010012 0x00000000 0x00000008' >raw
    mst raw2xml /tmp/raw /tmp/back.xml
    grep -o 'link_type>.*<' back.xml
    echo "commands of the help: $(run mstconfig --help | grep -oE '^ +(xml2raw|raw2xml|xml2bin)' | xargs)"
} >"$seen"
check <<'OUT'
mstconfig gen_tlvs_file: exit code 0
mstconfig gen_xml_template: exit code 0
<nv_vpi_link_type port='all'>
	<default_link_type>ETH</default_link_type>
</nv_vpi_link_type>
mstconfig xml2raw: exit code 3, Can not run the command, the tool was not compiled against libxml2
mstconfig xml2bin: exit code 3, Can not run the command, the tool was not compiled against libxml2
mstconfig raw2xml: exit code 0
link_type>ETH<
commands of the help: xml2raw raw2xml xml2bin
OUT
echo ok
