# The runtime does not come up, and no log says why.
0s    kubelet starts
20s   runtime starts
21s   runtime fails 1
26s   runtime starts
27s   runtime fails 1
32s   runtime starts
33s   runtime fails 1
2m    end
expect confirmed daemon_failing/1 containerd x3 since 20s
