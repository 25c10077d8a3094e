#!/usr/bin/env bash
# Package: source of Linux 6.12.117 (Debian 13).
# Guess:   mlx5_core has code for the signatures of commands and answers, so that it signs mailboxes and checks answers where firmware does as well.
# Seen:    The one switch of it is a field that is set to 1 when a device is found and never again: no mailbox is signed and no answer is checked.
#          Only the 64 bytes of the command's own entry are signed, always.
# Matters: That code is no evidence for the form of a card's signatures; it has run on none.
source "$(dirname "$0")/lib.sh"
core=drivers/net/ethernet/mellanox/mlx5/core
linux $core include/linux/mlx5/driver.h
cd "$tmp/linux"
{
    echo "files that name the switch: $(grep -rl checksum_disabled . | sort | xargs)"
    grep -h checksum_disabled $core/cmd.c | sed 's/^[[:space:]]*//'
    echo "unconditional: $(grep -A3 '^static void set_signature' $core/cmd.c | grep -c '^.ent->lay->sig = ')"
} >"$seen"
check <<'OUT'
files that name the switch: ./drivers/net/ethernet/mellanox/mlx5/core/cmd.c ./include/linux/mlx5/driver.h
set_signature(ent, !cmd->checksum_disabled);
if (!cmd->checksum_disabled)
cmd->checksum_disabled = 1;
unconditional: 1
OUT
echo ok
