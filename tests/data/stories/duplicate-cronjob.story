# One Job after the other, each a pod of its own.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 0
10s   stop a
12s   remove a
60s   sandbox b of job-2 on podnet 10.88.0.2
61s   container main in b starts
69s   container main in b exits 0
70s   stop b
72s   remove b
9m    end
expect nothing
