# Nobody starts the kubelet any more.
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
20s   kubelet starts
21s   kubelet fails 1
22s   kubelet starts
23s   kubelet fails 1
24s   kubelet starts
25s   kubelet fails 1
9m    end
expect confirmed daemon_failing/1 kubelet x3 since 20s
