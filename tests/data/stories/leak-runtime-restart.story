# The runtime restarts with pods running; they live on.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
5s    runtime dies
20s   runtime starts
60s   stop a
61s   remove a
9m    end
expect nothing
