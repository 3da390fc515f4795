# The kubelet and the runtime restart, and the containers run on.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   kubelet dies
61s   kubelet starts
62s   runtime dies
63s   runtime starts
9m    end
expect nothing
