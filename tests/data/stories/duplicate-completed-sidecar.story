# A Job's pod with a sidecar is done: the kubelet ends the sidecar, which says 143. A sandbox made after that is one too many.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container proxy in a starts
3s    container main in a starts
9s    container main in a exits 0
10s   container proxy in a is stopped
11s   stop a
12s   sandbox b of job-1 on podnet 10.88.0.3
14s   stop b
15s   remove a
16s   remove b
9m    end
expect confirmed duplicate_sandbox/after_completion x1 job-1 a b since 12s
