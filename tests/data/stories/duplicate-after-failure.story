# The container had failed: another sandbox is no surprise, even one that is given up again.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 1
10s   stop a
12s   sandbox b of job-1 on podnet 10.88.0.3
30s   stop b
31s   remove a
31s   remove b
9m    end
expect nothing
