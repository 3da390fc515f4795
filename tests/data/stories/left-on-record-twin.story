# A Job has completed, and is kept: the kubelet keeps its log folder, and the runtime its sandbox.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
10s   stop a
10s   pod web-0 goes
1m    runtime lists
2m    runtime lists
3m    runtime lists
4m    runtime lists
5m    runtime lists
6m    runtime lists
7m    runtime lists
8m    runtime lists
9m    runtime lists
10m    runtime lists
11m    runtime lists
14m   end
expect nothing
