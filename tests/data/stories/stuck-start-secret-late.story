# The Secret is made after four minutes.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
3s    kubelet says of web-0 MountVolume.SetUp failed for volume "tls" : secret "tls" not found
4m    sandbox a of web-0 on podnet 10.88.0.2
4m    container main in a starts
20m   end
expect nothing
