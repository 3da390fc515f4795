# The kubelet does not come up, and says why.
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
20s   kubelet starts
21s   kubelet says of itself failed to run Kubelet: running with swap on is not supported, please disable swap
21s   kubelet fails 1
31s   kubelet starts
32s   kubelet says of itself failed to run Kubelet: running with swap on is not supported, please disable swap
32s   kubelet fails 1
42s   kubelet starts
43s   kubelet fails 1
53s   kubelet starts
54s   kubelet fails 1
2m    end
expect confirmed daemon_failing/1 kubelet x4 since 20s says failed to run Kubelet: running with swap on is not supported, please disable swap
