# What the kubelet said of the volume is not said of the image, for which the pod waits later.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
3s    kubelet says of web-0 MountVolume.SetUp failed for volume "tls" : secret "tls" not found
4m    sandbox a of web-0 on podnet 10.88.0.2
13m   kubelet says of web-0 failed to resolve reference "quay.io/x:1": quay.io/x:1: not found
21m   end
expect confirmed stuck_start/container web-0 a since 240s says failed to resolve
