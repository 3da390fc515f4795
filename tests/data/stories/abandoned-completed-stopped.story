# A completed pod, whose sandbox the kubelet stops in time and removes much later.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-0 on podnet 10.88.0.2
1s    pod job-0 has main
2s    container main in a starts
30s   container main in a exits 0
40s   stop a
60m   remove a
2h    end
expect nothing
