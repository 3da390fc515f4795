# A runtime that removes the network before it ends the processes, and an address that is given out again at once.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
10s   del a
11s   sandbox b of web-1 on podnet 10.88.0.2
12s   container main in b starts
15s   stop a
16s   remove a
9m    end
expect nothing
