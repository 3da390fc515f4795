# A container crashes, the sandbox is changed, and the container starts in the new one.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 1
10s   stop a
11s   sandbox b of web-0 on podnet 10.88.0.3
12s   container main in b starts
13s   remove a
9m    end
expect nothing
