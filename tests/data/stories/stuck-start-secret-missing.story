# A Secret that nobody makes. The kubelet says so with each try.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
3s    kubelet says of web-0 MountVolume.SetUp failed for volume "tls" : secret "tls" not found
2m    kubelet says of web-0 MountVolume.SetUp failed for volume "tls" : secret "tls" not found
8m    end
expect confirmed stuck_start/sandbox web-0 since 1s says MountVolume.SetUp
