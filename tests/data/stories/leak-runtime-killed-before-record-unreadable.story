# The same, and the runtime's records can no longer be read whole: it may have the sandbox, and nothing is told.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
6s    add a podnet 10.88.0.2
7s    runtime dies
8s    half-read
9s    runtime starts
12s   sandbox b of web-0 on podnet 10.88.0.3
13s   container main in b starts
9m    end
expect confirmed blind_spot
