# A Job's pod is done and removed.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 0
10s   stop a
11s   pod job-1 goes
12s   remove a
9m    end
expect nothing
