# A volume that takes an hour, and an image that takes twenty minutes.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
2s    sandbox b of web-1 on podnet 10.88.0.3
20m   end
expect confirmed stuck_start/sandbox since 1s
expect confirmed stuck_start/container web-1 b
