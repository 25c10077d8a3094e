# Debian's programs on Debian's own libibverbs, libmlx5 and librdmacm, for which the kernel's verbs ABI is served in each process on
# a function of vfio-pci. No module of the kernel's RDMA is loaded.
first=0000:01:00.0
second=0000:02:00.0
served='/ours/bareverbs-run --uverbs --log info --device'
one="$served vfio:$first --unit 1"
two="$served vfio:$second --unit 2"
step 60 'bind' "modprobe vfio_iommu_type1 && modprobe vfio-pci &&
    for card in $first $second; do /ours/devinfo --device vfio:\$card --bind || exit; done"
step 60 'devinfo' "$one ibv_devinfo -v"
# The programs find each other by TCP, or by the connection manager.
for program in 'ibv_rc_pingpong -c -n 100 -g 0' 'ibv_rc_pingpong -c -e -n 100 -g 0' 'ib_write_bw -F -n 200 -x 0' \
    'ib_send_lat -F -n 100 -x 0'; do
    client_server 60 "$program" 'listening 18515' "$one $program" "$two $program 127.0.0.1"
done
client_server 60 'rping' 'grep -q rdma_listen /run/server' "$one rping -s -a 10.0.0.1 -C 20 -V -v" \
    "$two rping -c -a 10.0.0.1 -C 20 -V -v"
step 10 'no module' '! grep -E "^(mlx5|ib_)" /proc/modules'
