#!/usr/bin/env bash
# Package: source of Linux 6.12.117 (Debian 13).
# Guess:   Linux reads MTMP, the register of temperatures, alike in adapters (mlx5) and switches (mlxsw): eighths of a degree with a sign.
# Seen:    mlxsw's conversion knows negative values, mlx5's multiplies an unsigned number: -1 degree of a card in the cold is 8191 degrees.
# Matters: A threshold on hwmon's temp1_input fires below zero; read the register as 16 bits with a sign.
source "$(dirname "$0")/lib.sh"
net=drivers/net/ethernet/mellanox
linux $net/mlx5/core/hwmon.c $net/mlxsw/reg.h
cat >"$tmp/convert.c" <<'C'
#include <stdint.h>
#include <stdio.h>
#define GENMASK(h, l) (((~0ul) << (l)) & (~0ul >> (63 - (h))))
typedef int16_t s16;
#include "conversions.h"
int main(void)
{
    uint32_t field = 0xfff8; /* what MLX5_GET returns for a field of 16 bits */
    s16 value = (s16)field;  /* what mlxsw's reader has */
    printf("mlx5: %d\n", (int)mtmp_temp_to_mdeg(field));
    printf("mlxsw: %d\n", (int)MLXSW_REG_MTMP_TEMP_TO_MC(value));
    return 0;
}
C
{
    grep -h -A3 '^#define MLXSW_REG_MTMP_TEMP_TO_MC' "$tmp/linux/$net/mlxsw/reg.h"
    grep -h '^#define mtmp_temp_to_mdeg' "$tmp/linux/$net/mlx5/core/hwmon.c"
} >"$tmp/conversions.h"
cc -o "$tmp/convert" "$tmp/convert.c"
"$tmp/convert" >"$seen"
check <<'OUT'
mlx5: 8191000
mlxsw: -1000
OUT
echo ok
