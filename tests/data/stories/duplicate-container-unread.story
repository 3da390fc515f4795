# The files of a container in the second sandbox cannot be read: it is not known in which sandbox it ran.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on podnet 10.88.0.3
6s    unreadable
7s    container main in b starts
9s    container main in b exits 0
10s   stop b
9m    end
expect nothing
