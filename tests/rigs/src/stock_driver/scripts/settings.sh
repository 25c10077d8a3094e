# What Linux's programs read and set of the port, its module and its sensors: what they show has to be what the model holds, and
# what they set has to come to it.
card='card=$(netdev mlx5_core)'
hwmon='cd /sys/class/hwmon/hwmon0'
parameters='cd /sys/kernel/debug/mlx5/*/cc_params'

# held NAME WORD VALUE: the model has the value.
held() {
    ask 0 "$2"
    step 30 "$1" "echo '$2 $answer'; [ '$answer' = '$3' ]"
}

step 60 'load' 'modprobe mlx5_core && netdev mlx5_core && modprobe mlx5_ib && mount -t debugfs debugfs /sys/kernel/debug'
step 60 'up' "$card"' && ip link set $card up && until_true "grep -q 1 /sys/class/net/$card/carrier"'

step 30 'module' "$card; ethtool -m \$card"
step 30 'memory of the module' "$card; ethtool -m \$card hex on length 256"

step 30 'sensor' "$hwmon; [ \$(cat name temp1_label temp1_input temp1_highest temp1_crit | tr '\n' ' ' | tee /dev/stderr | tr ' ' -) = \
    mlx5-asic-45000-45000-105000- ]"
host temperature 0 0 880
step 30 'heat' "$hwmon; until_true 'grep -q 110000 temp1_input && dmesg | grep -q \"High temperature\"'; grep 110000 temp1_highest"
host temperature 0 0 324
step 30 'cooler' "$hwmon; until_true 'grep -q 40500 temp1_input'; grep 110000 temp1_highest; echo 1 > temp1_reset_history; grep 40500 temp1_highest"

step 30 'pauses when sending' "$card; ethtool -A \$card rx off tx on; ethtool -a \$card"
held 'pauses held' pauses 10
step 30 'pauses both ways' "$card; ethtool -A \$card rx on tx on; ethtool -a \$card"
held 'both pauses held' pauses 11

step 30 'error correction' "$card; ethtool --show-fec \$card"
step 30 'without error correction' "$card; ethtool --set-fec \$card encoding off && ethtool --show-fec \$card"
held 'none held' fec 0x1
step 30 'another error correction' "$card; ! ethtool --set-fec \$card encoding baser"
step 30 'error correction again' "$card; ethtool --set-fec \$card encoding rs && ethtool --show-fec \$card"
held 'Reed-Solomon held' fec 0x4

# Pauses of priorities take the place of the port's.
step 30 'pauses of priorities' "$card; dcb pfc set dev \$card prio-pfc all:off 3:on 5:on && dcb -s pfc show dev \$card"
held 'priorities held' pfc 0x28,0x28
held 'no pauses held' pauses 00

# The driver trusts the DSCP as long as one is mapped.
step 30 'DSCPs' "$card; dcb app add dev \$card dscp-prio 26:3 46:5 && dcb app show dev \$card"
held 'DSCP trusted' trust 2
step 30 'no DSCPs' "$card; dcb app flush dev \$card && dcb app show dev \$card"
held 'tag trusted' trust 1
step 30 'DSCPs again' "$card; dcb app add dev \$card dscp-prio 26:3 46:5 && dcb app show dev \$card"
held 'DSCP trusted again' trust 2
priorities=0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,3,3,3,3,3,3,3,3
held 'DSCPs held' dscp $priorities,4,4,4,4,4,4,4,4,5,5,5,5,5,5,5,5,6,6,6,6,6,6,6,6,7,7,7,7,7,7,7,7

step 30 'traffic classes' "$card; dcb ets set dev \$card prio-tc all:0 3:1 5:2 tc-tsa all:strict 0:ets 1:ets tc-bw all:0 0:40 1:60 && dcb ets show dev \$card"
held 'classes held' classes 0,0,0,1,0,2,0,0
# Classes that share bandwidth come first, in one group; each strict one is a group of its own.
held 'groups held' groups 0,0,1,2,3,4,5,6
held 'bandwidth held' bandwidth 40,60,100,100,100,100,100,100
# iproute2 6.15 writes bytes per second where the kernel reads thousands of bits per second, so this is 10 Gb/s.
step 30 'limit' "$card; dcb maxrate set dev \$card tc-maxrate 1:80Mbit && dcb maxrate show dev \$card"
held 'limit held' limits 0,100,0,0,0,0,0,0
held 'unit held' units 0,3,0,0,0,0,0,0

step 30 'parameters of congestion control' "$parameters; for one in *; do echo \$one \$(cat \$one); done"
step 30 'other parameters' "$parameters; echo 77 > rp_ai_rate; echo 26 > np_cnp_dscp; echo 3 > np_cnp_prio; cat rp_ai_rate np_cnp_dscp np_cnp_prio"
held 'rate held' ai-rate 77
held 'DSCP of notifications held' cnp-dscp 26
held 'priority of notifications held' cnp-priority 3

step 30 'counters of the link to the host' "$card; ethtool -S \$card | grep pci"
step 30 'counters of priorities' "$card; ethtool -S \$card | grep prio3; ethtool -I -a \$card; ethtool -S \$card --groups eth-phy eth-mac eth-ctrl rmon"
step 30 'rdma statistic' 'rdma statistic show link mlx5_0/1'
step 30 'health' 'devlink health show'
# What the driver asks the card for: its firmware, its queues, its queue pairs.
step 30 'diagnosis' 'devlink health diagnose pci/0000:01:00.0 reporter fw
    for queues in rx tx; do devlink health diagnose auxiliary/mlx5_core.eth.0/65535 reporter $queues || exit; done'
step 30 'queue pairs' 'cd /sys/kernel/debug/mlx5/*/QPs && for one in */*; do echo $one $(cat $one) || exit; done'
step 60 'unload' 'rmmod mlx5_ib && rmmod mlx5_core'
