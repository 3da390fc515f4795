# A pod completes and is deleted, and comes again with the same UID. Its start takes long.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    remove a
6s    pod job-1 goes
20s   pod job-1
21s   sandbox b of job-1 on podnet 10.88.0.3
60s   container main in b starts
9m    end
expect nothing
