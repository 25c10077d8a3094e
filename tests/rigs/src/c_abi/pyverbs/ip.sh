#!/bin/sh
# `ip -j addr show NAME` for a port of this library, which is no interface of the system's: the address of the end that
# listens.
echo '[{"address": "02:00:00:00:00:02", "addr_info": [{"local": "10.0.0.2"}]}]'
