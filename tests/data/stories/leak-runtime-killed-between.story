# The runtime is killed within a stop and finishes it after its return.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
10s   stop a no-del
10s   runtime dies
60s   runtime starts
70s   del a
71s   remove a
9m    end
expect nothing
