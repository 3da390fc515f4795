# A restart that keeps the sandboxes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    sandbox b of web-1 on podnet 10.88.0.3
4s    container main in b starts
60s   runtime dies
61s   runtime starts
62s   kubelet dies
63s   kubelet starts
9m    end
expect nothing
