# What runs programs, testpmd.sh's as well.
card=0000:01:00.0
runner="/ours/bareverbs-run --uverbs --log warn --device vfio:$card --unit $((me + 1))"
