# The sidecar ends by itself, with the same code as if it had been told to: the pod was not done, and is given a new sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container proxy in a starts
3s    container main in a starts
9s    container main in a exits 0
10s   container proxy in a exits 143
11s   stop a
12s   sandbox b of job-1 on podnet 10.88.0.3
14s   stop b
15s   remove a
16s   remove b
9m    end
expect nothing
