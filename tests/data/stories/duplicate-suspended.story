# A second sandbox is made as the node is suspended: it has not stood there while nothing ran.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 0
10s   stop a
11s   sandbox b of job-1 on podnet 10.88.0.3
9m    wakes
550s  container main in b starts
20m   end
expect nothing
