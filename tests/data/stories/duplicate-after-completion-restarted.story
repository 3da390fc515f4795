# After it was done the pod is started again, and runs: somebody wanted that.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 0
10s   stop a
12s   sandbox b of job-1 on podnet 10.88.0.3
13s   container main in b starts
20s   stop b
21s   remove a
21s   remove b
9m    end
expect nothing
